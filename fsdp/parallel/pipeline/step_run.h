// SPDX-License-Identifier: Apache-2.0
// StepRun: one batch on one pipeline stage: the microbatches, the messages that
// they exchange with the neighbours, and their backwards. A schedule makes one
// for each step and gives it the order. For the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_STEP_RUN_H_
#define FSDP_PARALLEL_PIPELINE_STEP_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/pipeline/microbatch_sync.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"
#include "fsdp/parallel/pipeline/schedule_order.h"
#include "fsdp/parallel/pipeline/stage_comm.h"

namespace fsdp {

// The step's work on this stage.
struct StepPlan {
  // Without activations, which the first microbatch adds.
  StepHeader header;
  // On the first and on the last stage: a piece for each microbatch.
  std::vector<StageTensors> inputs;
  std::vector<at::Tensor> targets;
  // On the last stage; null without a loss.
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss_fn;
  // The gradient for each microbatch's loss.
  double loss_scale = 1;
  bool keep_outputs = true;
};

class StepRun {
 public:
  // Both must outlive this.
  StepRun(const PipelineStage& stage, StageComm& comm, StepPlan plan);

  // Runs the actions, in which a microbatch's forward comes before the
  // backward, and waits for all sent messages.
  void Run(const std::vector<PipelineAction>& order);

  // On the last stage, after Run: by microbatch, detached.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  const std::vector<at::Tensor>& losses() const { return losses_; }

 private:
  struct Microbatch {
    StageTensors inputs;
    StageTensors outputs;  // the graph's roots
    at::Tensor loss;
    StageTensors grads;                 // for the outputs that require one
    std::optional<StageTransfer> sent;  // the activations
  };

  void ReceiveHeader();
  std::optional<StageMessage> MessageBefore(const PipelineAction& action);
  std::optional<StageMessage> Compute(const PipelineAction& action);
  std::optional<StageMessage> Forward(int64_t microbatch);
  std::optional<StageMessage> Backward(int64_t microbatch);
  void FinishLastStage(Microbatch& batch, int64_t microbatch);
  void AnnounceOutputs(const StageTensors& outputs);
  void Keep(std::optional<StageTransfer> transfer);

  const PipelineStage& stage_;
  StageComm& comm_;
  StepPlan plan_;
  std::optional<MicrobatchSync> sync_;
  int64_t backwards_left_;
  std::vector<Microbatch> microbatches_;
  StepHeader received_;   // from the previous stage
  StepHeader announced_;  // to the next stage
  std::optional<StageTransfer> header_sent_;
  std::optional<StageTransfer> last_sent_;  // that no gradient answers
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> losses_;
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_STEP_RUN_H_
