// SPDX-License-Identifier: Apache-2.0
// CountingBackend: wraps a process group's backend and counts the collectives
// that go through it.
//
//   CountingBackend& counts = Count(mesh.get_group());
//   ... train a step ...
//   EXPECT_EQ(counts.calls("all_gather"), 3);
//   EXPECT_EQ(counts.ToString(), "all_gather 3, reduce_scatter 3");
//   counts.Reset();
//
// For the test's thread; counts may also rise on autograd's thread while the
// test waits for it.
#ifndef TESTS_TESTING_COUNTING_BACKEND_H_
#define TESTS_TESTING_COUNTING_BACKEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fsdp/mesh/process_group.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp::testing {

class CountingBackend : public c10d::Backend {
 public:
  // The operations are "all_gather", "reduce_scatter", "all_reduce",
  // "broadcast", "reduce", "gather", "scatter", "all_to_all", "send", "recv"
  // and "barrier", whichever variant was called. The messages that ranks
  // exchange before a collective (collective_order.h) do not count.
  int64_t calls(const std::string& operation) const;
  // The bytes of this rank's input tensors.
  int64_t bytes(const std::string& operation) const;
  // Calls of all operations together.
  int64_t calls() const;
  // "all_gather 3, broadcast 1"; alphabetical; empty if nothing was called.
  std::string ToString() const;
  void Reset();
  // Called before each operation is forwarded, with the operation's name and
  // input tensors; for tests of order, dtypes and values on the wire.
  using Observer = std::function<void(const std::string& operation,
                                      const std::vector<at::Tensor>& inputs)>;
  void set_observer(Observer observer);

  explicit CountingBackend(c10::intrusive_ptr<c10d::Backend> inner);

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;
  void abort() override;
  void shutdown() override;

  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceCoalescedOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce(
      std::vector<at::Tensor>& tensors,
      const c10d::ReduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> gather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::GatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output, at::Tensor& input,
      std::vector<int64_t>& output_split_sizes,
      std::vector<int64_t>& input_split_sizes,
      const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors,
                                      int dst_rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors,
                                      int src_rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors,
                                               int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(
      const c10d::BarrierOptions& opts) override;

 private:
  struct Counts {
    int64_t calls = 0;
    int64_t bytes = 0;
  };

  void Note(const std::string& operation,
            const std::vector<at::Tensor>& inputs);

  c10::intrusive_ptr<c10d::Backend> inner_;
  mutable std::mutex mutex_;
  std::map<std::string, Counts> counts_;
  Observer observer_;
};

// Puts a CountingBackend in front of the CPU backend of `group`, once; later
// calls return the same one. It lives as long as the group.
CountingBackend& Count(const ProcessGroup& group);

}  // namespace fsdp::testing

#endif  // TESTS_TESTING_COUNTING_BACKEND_H_
