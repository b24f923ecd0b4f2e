// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/counting_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/mesh/collective_order.h"

namespace fsdp::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

Tensors Flatten(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace

CountingBackend::CountingBackend(c10::intrusive_ptr<c10d::Backend> inner)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

int64_t CountingBackend::calls(const std::string& operation) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = counts_.find(operation);
  return found == counts_.end() ? 0 : found->second.calls;
}

int64_t CountingBackend::bytes(const std::string& operation) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = counts_.find(operation);
  return found == counts_.end() ? 0 : found->second.bytes;
}

int64_t CountingBackend::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t sum = 0;
  for (const auto& [operation, counts] : counts_) sum += counts.calls;
  return sum;
}

std::string CountingBackend::ToString() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const auto& [operation, counts] : counts_) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", operation, " ",
                    counts.calls);
  }
  return text;
}

void CountingBackend::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.clear();
}

void CountingBackend::set_observer(Observer observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observer_ = std::move(observer);
}

void CountingBackend::Note(const std::string& operation,
                           const Tensors& inputs) {
  Observer observer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Counts& counts = counts_[operation];
    ++counts.calls;
    for (const at::Tensor& input : inputs) {
      counts.bytes += static_cast<int64_t>(input.nbytes());
    }
    observer = observer_;
  }
  if (observer) observer(operation, inputs);
}

const std::string CountingBackend::getBackendName() const {
  return inner_->getBackendName();
}

c10::intrusive_ptr<c10d::Backend::Options>
CountingBackend::getBackendOptions() {
  return inner_->getBackendOptions();
}

void CountingBackend::setTimeout(std::chrono::milliseconds timeout) {
  inner_->setTimeout(timeout);
}

void CountingBackend::setSequenceNumberForGroup() {
  inner_->setSequenceNumberForGroup();
}

uint64_t CountingBackend::getSequenceNumberForGroup() {
  return inner_->getSequenceNumberForGroup();
}

void CountingBackend::abort() { inner_->abort(); }

void CountingBackend::shutdown() { inner_->shutdown(); }

WorkPtr CountingBackend::broadcast(Tensors& tensors,
                                   const c10d::BroadcastOptions& opts) {
  Note("broadcast", tensors);
  return inner_->broadcast(tensors, opts);
}

WorkPtr CountingBackend::allreduce(Tensors& tensors,
                                   const c10d::AllreduceOptions& opts) {
  Note("all_reduce", tensors);
  return inner_->allreduce(tensors, opts);
}

WorkPtr CountingBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  Note("all_reduce", tensors);
  return inner_->allreduce_coalesced(tensors, opts);
}

WorkPtr CountingBackend::reduce(Tensors& tensors,
                                const c10d::ReduceOptions& opts) {
  Note("reduce", tensors);
  return inner_->reduce(tensors, opts);
}

WorkPtr CountingBackend::allgather(std::vector<Tensors>& outputs,
                                   Tensors& inputs,
                                   const c10d::AllgatherOptions& opts) {
  Note("all_gather", inputs);
  return inner_->allgather(outputs, inputs, opts);
}

WorkPtr CountingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::AllgatherOptions& opts) {
  Note("all_gather", {input});
  return inner_->_allgather_base(output, input, opts);
}

WorkPtr CountingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  Note("all_gather", inputs);
  return inner_->allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr CountingBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::GatherOptions& opts) {
  Note("gather", inputs);
  return inner_->gather(outputs, inputs, opts);
}

WorkPtr CountingBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                 const c10d::ScatterOptions& opts) {
  Note("scatter", Flatten(inputs));
  return inner_->scatter(outputs, inputs, opts);
}

WorkPtr CountingBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& opts) {
  Note("reduce_scatter", Flatten(inputs));
  return inner_->reduce_scatter(outputs, inputs, opts);
}

WorkPtr CountingBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input,
    const c10d::ReduceScatterOptions& opts) {
  Note("reduce_scatter", {input});
  return inner_->_reduce_scatter_base(output, input, opts);
}

WorkPtr CountingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  Note("reduce_scatter", inputs);
  return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr CountingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                       std::vector<int64_t>& output_split_sizes,
                                       std::vector<int64_t>& input_split_sizes,
                                       const c10d::AllToAllOptions& opts) {
  Note("all_to_all", {input});
  return inner_->alltoall_base(output, input, output_split_sizes,
                               input_split_sizes, opts);
}

WorkPtr CountingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                  const c10d::AllToAllOptions& opts) {
  Note("all_to_all", inputs);
  return inner_->alltoall(outputs, inputs, opts);
}

WorkPtr CountingBackend::send(Tensors& tensors, int dst_rank, int tag) {
  if (tag != kOrderCheckTag) Note("send", tensors);
  return inner_->send(tensors, dst_rank, tag);
}

WorkPtr CountingBackend::recv(Tensors& tensors, int src_rank, int tag) {
  if (tag != kOrderCheckTag) Note("recv", {});
  return inner_->recv(tensors, src_rank, tag);
}

WorkPtr CountingBackend::recvAnysource(Tensors& tensors, int tag) {
  Note("recv", {});
  return inner_->recvAnysource(tensors, tag);
}

WorkPtr CountingBackend::barrier(const c10d::BarrierOptions& opts) {
  Note("barrier", {});
  return inner_->barrier(opts);
}

CountingBackend& Count(const ProcessGroup& group) {
  const c10::intrusive_ptr<c10d::Backend> current =
      group->getBackend(c10::DeviceType::CPU);
  if (auto* counting = dynamic_cast<CountingBackend*>(current.get())) {
    return *counting;
  }
  const auto counting = c10::make_intrusive<CountingBackend>(current);
  // Registered under a separate type, because a group keeps only the first
  // backend for each type.
  group->setBackend(c10::DeviceType::CPU,
                    c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(counting));
  return *counting;
}

}  // namespace fsdp::testing
