// SPDX-License-Identifier: Apache-2.0
// StageComm: messages between the neighbours of a pipeline: activations to the
// next stage, gradients to the previous one, and before the first activations
// of a step a header that says what the step is and what activations are like.
// The stage of a rank is its rank in the group of the pipeline. For the thread
// that trains.
//
// Headers travel over the group's backend for the CPU, if it has one, so that a
// GPU need not wait for them.
//
// [Note: two groups]
// Gloo keeps messages apart by their tags. NCCL ignores tags: between two ranks
// of a group it has one queue for both directions, and a message leaves the
// queue of the sender together with that of the receiver. There gradients
// travel on a second group, so that each queue has messages of one direction,
// which both ends issue by ascending microbatch. No schedule of
// schedule_order.h can then wait in a circle: a stage issues what it computed
// before it waits for anything; forwards depend on earlier stages alone; and
// the backward of microbatch i needs of the stages after this one only their
// forwards and backwards up to i, for which this stage has sent all they need.
// Whoever waits for a message to leave waits for the other stage to reach such
// a point. NCCL also connects two ranks at their first message, and the host
// waits for both; so the stages connect when they make a StageComm, because a
// stage that throws in its first step could not end that wait of the others.
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

// What the activations of one microbatch are like; the same for all
// microbatches of a step.
struct ActivationSpec {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  bool requires_grad;  // so a gradient comes back
};

// What two neighbours must agree on before a step.
struct StepHeader {
  ScheduleKind schedule;
  int64_t num_microbatches;
  bool has_backward;
  // From the sender; at most kMaxActivations of kMaxActivationDims dimensions.
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
  // Contiguous; what is received is written into them.
  std::vector<at::Tensor> tensors;
};

// A message that is being sent; it keeps the tensors alive.
struct StageTransfer {
  StageMessage message;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

class StageComm {
 public:
  // Collective over the stages of this pipeline; see [Note: two groups].
  explicit StageComm(const DeviceMesh& pp_mesh);

  int64_t stage_index() const { return group_->getRank(); }
  int64_t num_stages() const { return group_->getSize(); }
  // Where activations are.
  c10::Device device() const { return device_; }

  StageTransfer SendHeader(const StepHeader& header, int64_t peer);
  StepHeader ReceiveHeader(int64_t peer);
  // Issues both messages, either of which may be absent, first the one that is
  // sent, and waits for the one that is received. Returns the one that is sent,
  // which Wait ends. Throws c10::DistBackendError, which names rank, stage,
  // peer and microbatch.
  std::optional<StageTransfer> Exchange(
      std::optional<StageMessage> sent,
      const std::optional<StageMessage>& received);
  void Wait(std::optional<StageTransfer>& transfer);

  // What this stage is doing, "the forward of microbatch 3": other stages say
  // so if it is abandoned.
  void set_activity(std::string activity) { activity_ = std::move(activity); }
  // Called when this stage leaves a step with an error: publishes the activity
  // and closes the connections of both groups, so that the other stages get
  // errors soon instead of waiting for the timeout. The groups cannot be used
  // afterwards. Does not throw.
  void Abandon();

 private:
  void Connect();
  const ProcessGroup& GroupOf(const StageMessage& message) const;
  StageTransfer Send(StageMessage message);
  void Receive(const StageMessage& message);
  c10::intrusive_ptr<c10d::Work> Issue(const StageMessage& message, bool sends,
                                       const at::Tensor& tensor);
  void WaitFor(const c10::intrusive_ptr<c10d::Work>& work,
               const StageMessage& message, bool sends);
  std::string Describe(const StageMessage& message, bool sends) const;
  std::string ActivityKey(int64_t stage) const;

  ProcessGroup group_;
  std::vector<int64_t> ranks_;  // of the stages, in the job
  c10::Device device_;
  ProcessGroup gradient_group_;  // `group_` if its messages have tags
  c10::Device header_device_;
  std::string activity_;
};

// Abandons a step unless Finish is called: its scope is left by an exception.
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
