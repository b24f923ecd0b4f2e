// SPDX-License-Identifier: Apache-2.0
// StageComm: messages between neighbours in a pipeline: activations to the next
// stage, gradients to the previous one. Before a step's first activations it
// sends a header that describes the step and the activations. A rank's stage is
// the rank in the pipeline's group. For the thread that trains.
//
// Headers travel over the group's CPU backend, if there is one, so that a GPU
// need not wait for them.
//
// [Note: two groups]
// Gloo keeps messages apart by their tags. NCCL ignores tags: between two ranks
// in a group it has one queue for both directions, and a message leaves the
// sender's queue together with the receiver's. There gradients travel on a
// second group, so that each queue has messages in one direction, which both
// ends issue by ascending microbatch. No schedule in schedule_order.h can then
// wait in a circle: a stage issues each result before it waits for anything;
// forwards depend on earlier stages alone; and microbatch i's backward depends
// only on later stages' forwards and backwards up to i, for which this stage
// has already sent everything. A stage that waits for a message to leave waits
// for the other stage to reach such a point. NCCL also connects two ranks at
// their first message, and the host waits for both. So the stages connect when
// they make a StageComm, because a stage that throws in the first step could
// not end the others' wait.
#ifndef FSDP_PARALLEL_PIPELINE_STAGE_COMM_H_
#define FSDP_PARALLEL_PIPELINE_STAGE_COMM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/pipeline/schedule_order.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace fsdp {

// Describes one microbatch's activations; the same for all microbatches in a
// step.
struct ActivationSpec {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  bool requires_grad;  // so a gradient comes back
};

// The facts that two neighbours must agree on before a step.
struct StepHeader {
  ScheduleKind schedule;
  int64_t num_microbatches;
  bool has_backward;
  // From the sender; at most kMaxActivations with kMaxActivationDims
  // dimensions.
  std::vector<ActivationSpec> activations;
};

inline constexpr int64_t kMaxActivations = 8;
inline constexpr int64_t kMaxActivationDims = 8;

// A header as `kStepHeaderWords` numbers, and back. Encoding throws
// c10::ValueError for activations above the limits; decoding c10::Error for
// numbers that are not a header.
inline constexpr int64_t kStepHeaderWords =
    5 + kMaxActivations * (3 + kMaxActivationDims);
at::Tensor EncodeStepHeader(const StepHeader& header);
StepHeader DecodeStepHeader(const at::Tensor& words);

// Tensors that travel together between this stage and a neighbour.
struct StageMessage {
  enum class Kind { kHeader, kActivations, kGradients };
  Kind kind;
  int64_t microbatch;
  int64_t peer;  // the other stage
  // Contiguous; received data is written into them.
  std::vector<at::Tensor> tensors;
};

// A message that is being sent; it keeps the tensors alive.
struct StageTransfer {
  StageMessage message;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

class StageComm {
 public:
  // Collective over this pipeline's stages; see [Note: two groups].
  explicit StageComm(const DeviceMesh& pp_mesh);

  int64_t stage_index() const { return group_->getRank(); }
  int64_t num_stages() const { return group_->getSize(); }
  // The activations' device.
  c10::Device device() const { return device_; }

  StageTransfer SendHeader(const StepHeader& header, int64_t peer);
  StepHeader ReceiveHeader(int64_t peer);
  // Issues both messages, either of which may be absent, the sent one first,
  // and waits for the received one. Returns the sent one; Wait ends it. Throws
  // c10::DistBackendError, which names rank, stage, peer and microbatch.
  std::optional<StageTransfer> Exchange(
      std::optional<StageMessage> sent,
      const std::optional<StageMessage>& received);
  void Wait(std::optional<StageTransfer>& transfer);

  // This stage's current work, "the forward of microbatch 3": other stages
  // report it if the step is abandoned.
  void set_activity(std::string activity) { activity_ = std::move(activity); }
  // Called when this stage leaves a step with an error: publishes the activity
  // and closes both groups' connections, so that the other stages get errors
  // soon instead of waiting for the timeout. The groups cannot be used
  // afterwards. Does not throw.
  void Abandon();

 private:
  void Connect();
  const ProcessGroup& MessageGroup(const StageMessage& message) const;
  StageTransfer Send(StageMessage message);
  void Receive(const StageMessage& message);
  c10::intrusive_ptr<c10d::Work> Issue(const StageMessage& message, bool sends,
                                       const at::Tensor& tensor);
  void WaitFor(const c10::intrusive_ptr<c10d::Work>& work,
               const StageMessage& message, bool sends);
  std::string Describe(const StageMessage& message, bool sends) const;
  std::string ActivityKey(int64_t stage) const;

  ProcessGroup group_;
  std::vector<int64_t> ranks_;  // the stages' ranks in the job
  c10::Device device_;
  ProcessGroup gradient_group_;  // `group_` if messages have tags
  c10::Device header_device_;
  std::string activity_;
};

// Abandons a step if an exception leaves the scope before Finish is called.
class StepGuard {
 public:
  explicit StepGuard(StageComm& comm) : comm_(comm) {}
  ~StepGuard() {
    if (!finished_) comm_.Abandon();
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
  void Finish() { finished_ = true; }

 private:
  StageComm& comm_;
  bool finished_ = false;
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_STAGE_COMM_H_
