// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/alias.h"

#include "ATen/ops/empty_strided.h"
#include "ATen/ops/from_blob.h"
#include "tests/testing/sim_device/simulation.h"

namespace sim {
namespace {

Access MakeAccess(const at::Tensor& tensor, bool writes) {
  if (tensor.numel() == 0) return {};
  return {.extent = Extent(tensor.const_data_ptr(), tensor.sizes(),
                           tensor.strides(), tensor.element_size()),
          .writes = writes};
}

}  // namespace

Alias::Alias(const at::Tensor& tensor)
    : data_(tensor.numel() == 0 ? nullptr
                                : const_cast<void*>(tensor.const_data_ptr())),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      dtype_(tensor.scalar_type()) {}

at::Tensor Alias::OnCpu() const {
  const auto options = at::TensorOptions(dtype_).device(c10::kCPU);
  return data_ == nullptr ? at::empty_strided(sizes_, strides_, options)
                          : at::from_blob(data_, sizes_, strides_, options);
}

at::Tensor Alias::ZerosLike() const {
  return at::empty_strided(sizes_, strides_, at::TensorOptions(dtype_)).zero_();
}

bool IsOurs(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

Access Reads(const at::Tensor& tensor) {
  return MakeAccess(tensor, /*writes=*/false);
}

Access Writes(const at::Tensor& tensor) {
  return MakeAccess(tensor, /*writes=*/true);
}

}  // namespace sim
