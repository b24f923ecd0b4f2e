// SPDX-License-Identifier: Apache-2.0
// HostBackend: collectives on device tensors that go over the CPU, so that
// several ranks can share one GPU, which NCCL refuses. It computes on the
// current stream, and the host waits for that. For the thread that makes the
// collective.
#ifndef TESTS_FSDP_GPU_HOST_BACKEND_H_
#define TESTS_FSDP_GPU_HOST_BACKEND_H_

#include <string>
#include <vector>

#include "c10/core/DeviceType.h"
#include "fsdp/mesh/process_group.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp::testing {

// The collectives that fully_shard makes.
class HostBackend : public c10d::Backend {
 public:
  // `cpu` is for tensors on the CPU.
  explicit HostBackend(c10::intrusive_ptr<c10d::Backend> cpu);

  const std::string getBackendName() const override { return "host"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override;

 private:
  c10::intrusive_ptr<c10d::Backend> cpu_;
};

// Makes `group`, which has a backend for the CPU, use that for tensors on
// `device` too. Further calls change nothing.
void UseHost(const ProcessGroup& group, c10::DeviceType device);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_HOST_BACKEND_H_
