// SPDX-License-Identifier: Apache-2.0
// Makes NCCL backends. Only this file includes CUDA's headers, so that
// everything else compiles and links without CUDA.
#include "fsdp/mesh/nccl_backend.h"

#include <cstdint>

#include "c10/cuda/CUDAFunctions.h"
#include "fsdp/mesh/launch.h"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace fsdp {
namespace {

c10::intrusive_ptr<c10d::Backend> MakeNccl(const BackendRequest& request) {
  // NCCL uses each tensor's current device; a process that did not choose one
  // must not end up sharing GPU 0 with other processes.
  const int64_t index = ChooseDeviceIndex(
      request.local_rank, c10::cuda::device_count(), GetEnvironment);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  options->group_name = request.name;
  options->global_ranks_in_group = request.ranks;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      request.store, request.rank, request.size, options);
}

[[maybe_unused]] const bool kRegistered = RegisterBackend(NcclBackend());

}  // namespace

BackendKind NcclBackend() {
  return {.name = "nccl",
          .device_type = c10::DeviceType::CUDA,
          .type = c10d::ProcessGroup::BackendType::NCCL,
          .is_available = [] { return c10::cuda::device_count() > 0; },
          .make = MakeNccl};
}

}  // namespace fsdp
