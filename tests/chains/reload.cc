// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint's tensors with fsdp::load, on a job's ranks and with
// placements that a seed chooses, and saves them with fsdp::save:
//
//   reload SRC DST SEED
//
// chains.py starts it.

#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>

#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {
namespace {

absl::StatusOr<at::ScalarType> ScalarTypeFor(dcp::DType dtype) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    const absl::StatusOr<dcp::DType> found = ToDType(type);
    if (found.ok() && *found == dtype) return type;
  }
  return absl::UnimplementedError("LibTorch lacks the dtype");
}

absl::StatusOr<StateDict> Blank(const std::string& path, uint32_t seed) {
  const std::unique_ptr<dcp::FileSystem> fs = dcp::NewPosixFileSystem();
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<dcp::Checkpoint> checkpoint,
                       dcp::Checkpoint::Open(*fs, path, {}));
  const DeviceMesh mesh =
      init_device_mesh(at::kCPU, {get_world_size()}, {"shard"});
  std::mt19937 random(seed);
  StateDict state;
  for (const dcp::CheckpointEntry& entry : checkpoint->entries()) {
    const dcp::TensorEntry* tensor = entry.tensor();
    if (tensor == nullptr) continue;
    DCP_ASSIGN_OR_RETURN(const at::ScalarType type,
                         ScalarTypeFor(tensor->dtype));
    const at::Tensor whole = at::zeros(
        at::IntArrayRef(tensor->shape.data(), tensor->shape.size()), type);
    if (whole.dim() == 0 || random() % 4 == 0) {
      state[entry.fqn] = StateValue(whole);
      continue;
    }
    const auto dim = static_cast<int64_t>(random() % whole.dim());
    state[entry.fqn] =
        StateValue(distribute_tensor(whole, mesh, {Shard(dim)}, std::nullopt));
  }
  return state;
}

absl::Status Reload(const std::string& src, const std::string& dst,
                    uint32_t seed) {
  DCP_ASSIGN_OR_RETURN(StateDict state, Blank(src, seed));
  DCP_RETURN_IF_ERROR(load(state, src, {.verify = true}));
  return save(state, dst);
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "reload requires SRC DST SEED\n";
    return 2;
  }
  fsdp::init_process_group();
  const absl::Status status = fsdp::Reload(
      argv[1], argv[2], static_cast<uint32_t>(std::stoul(argv[3])));
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
