// SPDX-License-Identifier: Apache-2.0
// CommContext: the communication streams, the buffers that must stay alive, and
// the counters of moved bytes. Each root has one, or several roots share one
// (share_comm_ctx).
//
// [Note: streams]
// On a device with streams a gather copies in on `copy_in`, communicates on
// `all_gather`, which waits for the copy-in, and copies out on the compute
// stream; gradients are copied in on the compute stream, reduced on
// `reduce_scatter`, and with HSDP on `all_reduce`. Nothing is recorded with the
// allocator (record_stream): a buffer that another stream still reads is held
// here until an event shows that the stream has finished, so that peak memory
// is the same in every step:
//   - The tensors that a gather allocated on the gather streams (input, output,
//     and the extensions' tensors) live until the copy-out is issued. Forward
//     holds them until the next gather's copy-out is issued; `copy_in` then
//     waits for the copy-out that read them. Backward releases them at once,
//     which also costs one wait.
//   - A reduce-scatter's input lives until the next reduce-scatter begins, or
//     the n-th next one with set_reduce_scatter_max_input_buffers(n): only then
//     the compute stream waits for the one that read it.
//   - A tensor that is reduced on one stream and read on another, by an
//     all-reduce or a hook, lives until the backward ends.
//   - Shards are written on the compute stream. If shards were written since
//     the gather streams last waited for the compute stream, the next gather
//     makes them wait for it again.
//
// The CPU has no streams, so everything here is a no-op there.
#ifndef FSDP_ENGINE_COMM_COMM_CONTEXT_H_
#define FSDP_ENGINE_COMM_COMM_CONTEXT_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/core/StreamGuard.h"
#include "fsdp/engine/comm/step_recorder.h"

namespace fsdp {

class GroupReduction;
struct Finalization;

using EventPtr = std::shared_ptr<c10::Event>;

class CommContext {
 public:
  explicit CommContext(c10::Device device);
  ~CommContext();
  CommContext(const CommContext&) = delete;
  CommContext& operator=(const CommContext&) = delete;

  bool has_streams() const { return copy_in_.has_value(); }
  // Only on a device with streams.
  c10::Stream copy_in() const { return *copy_in_; }
  c10::Stream all_gather() const { return *all_gather_; }
  c10::Stream reduce_scatter() const { return *reduce_scatter_; }
  c10::Stream all_reduce() const { return *all_reduce_; }
  // This thread's current stream.
  c10::Stream current() const;

  // Without streams, Record returns null and the others do nothing.
  EventPtr Record(c10::Stream stream) const;
  EventPtr RecordCurrent() const;
  static void Wait(c10::Stream stream, const EventPtr& event);
  void WaitOnCurrent(const EventPtr& event) const;
  // Makes later work on the gather streams wait for the current stream, or only
  // for `event`.
  void BeginGathers(const EventPtr& event);

  // Keeps the tensors that a gather allocated on the gather streams. They are
  // freed after `copy_in` has been told to wait for `read`, an event after the
  // last work that reads them; see [Note: streams].
  void HoldGather(std::vector<at::Tensor> tensors, EventPtr read);
  void ReleaseGather();

  // The groups of the reductions in flight, oldest first; a group may have
  // several. See GroupReduction.
  std::deque<GroupReduction*>& reductions() { return reductions_; }
  // How many inputs of reductions there may be at once.
  size_t max_input_buffers() const { return max_input_buffers_; }
  void set_max_input_buffers(size_t most) { max_input_buffers_ = most; }

  // The asynchronous end of a root's backward that is not awaited yet; null
  // without one. See StepScheduler::FinalizeBackward.
  std::shared_ptr<Finalization> finalization() const {
    return finalization_.lock();
  }
  void set_finalization(std::weak_ptr<Finalization> pending) {
    finalization_ = std::move(pending);
  }

  StepRecorder& recorder() { return recorder_; }

 private:
  c10::Device device_;
  std::optional<c10::Stream> copy_in_, all_gather_, reduce_scatter_,
      all_reduce_;
  std::vector<at::Tensor> held_gather_;
  EventPtr held_gather_event_;
  std::deque<GroupReduction*> reductions_;
  size_t max_input_buffers_ = 1;
  std::weak_ptr<Finalization> finalization_;  // owned by its root
  StepRecorder recorder_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_COMM_COMM_CONTEXT_H_
