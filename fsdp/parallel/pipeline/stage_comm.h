// SPDX-License-Identifier: Apache-2.0
// StageComm: messages between neighbouring stages of a pipeline on different
// ranks: activations to the next stage, gradients to the previous one. Before a
// step's first activations a stage sends a header that describes the step and
// the activations. For the thread that trains.
//
// Headers travel over the group's CPU backend, if there is one, so that a GPU
// need not wait for them.
//
// [Note: two groups]
// Gloo keeps messages apart by their tags. NCCL ignores tags: between two ranks
// in a group it has one queue for both directions, and a message leaves the
// sender's queue together with the receiver's. There messages to lower ranks
// travel on a second group, so that each queue has messages in one direction,
// which both ends issue in one order: see [Note: no circle of messages] in
// order/message_plan.h. NCCL also connects two ranks at their first message,
// and the host waits for both. So the ranks connect when they make a StageComm,
// because a rank that throws in the first step could not end the others' wait.
#ifndef FSDP_PARALLEL_PIPELINE_STAGE_COMM_H_
#define FSDP_PARALLEL_PIPELINE_STAGE_COMM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/pipeline/order/message_plan.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"
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

// Tensors that travel together between a stage on this rank and a neighbour.
struct StageMessage {
  enum class Kind { kHeader, kActivations, kGradients };
  Kind kind;
  int64_t microbatch;
  int64_t stage;  // the one on this rank
  int64_t peer;   // the other stage
  // Contiguous; received data is written into them.
  std::vector<at::Tensor> tensors;
};

// A message that is under way; it keeps the tensors alive.
struct StageTransfer {
  StageMessage message;
  bool sends;  // or receives
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
};

class StageComm {
 public:
  // Collective over this pipeline's ranks; see [Note: two groups].
  // `stage_ranks` are the stages' ranks in the pipeline's group, and
  // `rank_pairs` those that exchange messages, ascending.
  StageComm(const DeviceMesh& pp_mesh, std::vector<int64_t> stage_ranks,
            const std::vector<std::pair<int64_t, int64_t>>& rank_pairs);

  int64_t rank() const { return group_->getRank(); }
  int64_t num_stages() const {
    return static_cast<int64_t>(stage_ranks_.size());
  }
  // The activations' device.
  c10::Device device() const { return device_; }

  // Both issue a message; Wait waits for the end. All throw
  // c10::DistBackendError, which names rank, stage, peer and microbatch.
  StageTransfer Send(StageMessage message);
  StageTransfer Receive(StageMessage message);
  void Wait(const StageTransfer& transfer);

  StageTransfer SendHeader(const StepHeader& header, int64_t stage,
                           int64_t peer);
  StepHeader ReceiveHeader(int64_t stage, int64_t peer);

  // This rank's current work, "the forward of microbatch 3", and the stage that
  // does it: other ranks report it if the step is abandoned.
  void set_activity(int64_t stage, const std::string& activity);
  // Called when this rank leaves a step with an error: publishes the activity
  // and closes both groups' connections, so that the other ranks get errors
  // soon instead of waiting for the timeout. The groups cannot be used
  // afterwards. Does not throw.
  void Abandon();

 private:
  void Connect(const std::vector<std::pair<int64_t, int64_t>>& rank_pairs);
  void Introduce(int64_t peer_rank);
  int64_t RankWithStage(int64_t stage) const {
    return stage_ranks_.at(static_cast<size_t>(stage));
  }
  const ProcessGroup& GroupTowards(int64_t peer_rank, bool sends) const;
  StageTransfer IssueAll(StageMessage message, bool sends);
  std::string Describe(const StageMessage& message, bool sends) const;
  std::string ActivityKey(int64_t rank) const;

  ProcessGroup group_;
  std::vector<int64_t> ranks_;        // the pipeline's ranks in the job
  std::vector<int64_t> stage_ranks_;  // in the group
  c10::Device device_;
  ProcessGroup second_group_;  // `group_` if messages have tags
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
