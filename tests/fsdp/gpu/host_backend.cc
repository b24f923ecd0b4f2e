// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/host_backend.h"

#include <utility>

#include "ATen/ops/empty_like.h"

namespace fsdp::testing {
namespace {

at::Tensor OnHost(const at::Tensor& tensor) { return tensor.to(at::kCPU); }

at::Tensor EmptyOnHost(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().device(at::kCPU));
}

}  // namespace

HostBackend::HostBackend(c10::intrusive_ptr<c10d::Backend> cpu)
    : Backend(cpu->getRank(), cpu->getSize()), cpu_(std::move(cpu)) {}

c10::intrusive_ptr<c10d::Backend::Options> HostBackend::getBackendOptions() {
  return cpu_->getBackendOptions();
}

// The returned works have ended: each function waits before it returns.

c10::intrusive_ptr<c10d::Work> HostBackend::allreduce(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) {
  std::vector<at::Tensor> sums{OnHost(tensors[0])};
  const auto work = cpu_->allreduce(sums, opts);
  work->wait();
  tensors[0].copy_(sums[0]);
  return work;
}

c10::intrusive_ptr<c10d::Work> HostBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  at::Tensor gathered = EmptyOnHost(output);
  at::Tensor own = OnHost(input);
  const auto work = cpu_->_allgather_base(gathered, own, opts);
  work->wait();
  output.copy_(gathered);
  return work;
}

c10::intrusive_ptr<c10d::Work> HostBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& opts) {
  at::Tensor sum = EmptyOnHost(output);
  at::Tensor own = OnHost(input);
  const auto work = cpu_->_reduce_scatter_base(sum, own, opts);
  work->wait();
  output.copy_(sum);
  return work;
}

void UseHost(const ProcessGroup& group, c10::DeviceType device) {
  const auto host =
      c10::make_intrusive<HostBackend>(group->getBackend(c10::DeviceType::CPU));
  group->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(host));
}

}  // namespace fsdp::testing
