// SPDX-License-Identifier: Apache-2.0
// Describes a group in errors and allocates collective buffers.
// Tested by tests/fsdp/fsdp_module_test.cc.
#include "fsdp/engine/group_data.h"

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp {

std::string GroupData::Describe(const char* collective) const {
  return name.empty() ? absl::StrCat(collective, " of the root")
                      : absl::StrCat(collective, " of '", name, "'");
}

at::Tensor GroupData::EmptyBuffer(int64_t numel, c10::ScalarType dtype,
                                  c10d::ProcessGroup& group,
                                  bool is_custom) const {
  const auto options = at::TensorOptions(dtype).device(config.device);
  if (settings.allocate_from_process_group && !is_custom) {
    return group.getBackend(config.device.type())
        ->allocateTensor(numel, options);
  }
  return at::empty({numel}, options);
}

}  // namespace fsdp
