// SPDX-License-Identifier: Apache-2.0
// Runs a batch, whole or through the pipeline's stages.
//
// Tested by tests/fsdp/examples/stages_test.cc.
#include "fsdp/examples/train_llama/stages.h"

#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "fsdp/forward.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/pipeline/module_names.h"
#include "fsdp/parallel/pipeline/schedules.h"

namespace llama {
namespace {

at::Tensor BatchLoss(const Config& config, const at::Tensor& logits,
                     const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat).flatten(0, 1),
                                targets.flatten()) /
         config.accumulate;
}

// With --sp, each tensor parallel rank in a stage passes on a part of the
// sequences; otherwise each passes on the whole.
fsdp::PipelineStage MakeStage(const Config& config,
                              const fsdp::ParallelDims& dims, Llama model) {
  const fsdp::DeviceMesh pp = dims.get_mesh("pp");
  const std::optional<fsdp::DeviceMesh> tp = dims.get_optional_mesh("tp");
  const fsdp::Placement between = config.sequence_parallel
                                      ? fsdp::Placement(fsdp::Shard(1))
                                      : fsdp::Placement(fsdp::Replicate());
  const bool is_first = pp.get_local_rank() == 0;
  const bool is_last = pp.get_local_rank() == pp.size() - 1;
  const auto forward = [=](const fsdp::StageTensors& inputs) mutable {
    at::Tensor h = inputs[0];
    if (tp.has_value() && !is_first) h = fsdp::from_local(h, *tp, {between});
    h = fsdp::forward(model, h);
    if (tp.has_value() && !is_last) {
      h = fsdp::to_local(fsdp::redistribute(h, *tp, between));
    }
    return fsdp::StageTensors{h};
  };
  return fsdp::PipelineStage(model.ptr(), forward, pp);
}

BatchRunner MakePipelineRunner(const Config& config,
                               const fsdp::ParallelDims& dims, Llama model) {
  const fsdp::PipelineStage stage = MakeStage(config, dims, std::move(model));
  const auto loss_of = [&config](const at::Tensor& logits,
                                 const at::Tensor& targets) {
    return BatchLoss(config, logits, targets);
  };
  // The runner owns it, through std::function, which copies all that it holds.
  std::shared_ptr<fsdp::PipelineSchedule> schedule;
  if (config.pipeline_schedule == "gpipe") {
    schedule = std::make_shared<fsdp::ScheduleGPipe>(stage, config.microbatches,
                                                     loss_of);
  } else {
    schedule = std::make_shared<fsdp::Schedule1F1B>(stage, config.microbatches,
                                                    loss_of);
  }
  return [schedule, num_stages = stage.num_stages()](const Batch& batch) {
    fsdp::StageTensors losses;
    const fsdp::PipelineBatch whole{.args = {batch.tokens},
                                    .target = batch.targets,
                                    .losses = &losses,
                                    .return_outputs = false};
    if (at::GradMode::is_enabled()) {
      schedule->step(whole);
    } else {
      schedule->eval(whole);
    }
    if (losses.empty()) {
      return at::zeros({}, batch.tokens.options().dtype(at::kFloat));
    }
    for (at::Tensor& loss : losses) loss = fsdp::full_tensor(loss);
    return at::stack(losses).mean() * num_stages;
  };
}

}  // namespace

void KeepStage(const Config& config, const fsdp::ParallelDims& dims,
               Llama& model) {
  if (*config.train.mesh.pipeline_parallel_degree == 1) return;
  // With 256 tokens the first and the last module cost next to nothing.
  const auto names = fsdp::pipeline_module_names(
      *config.train.mesh.pipeline_parallel_degree, config.model.num_layers,
      {.input_weight = 0,
       .output_weight = 0,
       .inputs = {"embed_tokens"},
       .outputs = {"norm", "lm_head"}});
  model->KeepModules(names[dims.get_mesh("pp").get_local_rank()]);
}

BatchRunner MakeBatchRunner(const Config& config,
                            const fsdp::ParallelDims& dims, Llama model) {
  if (*config.train.mesh.pipeline_parallel_degree > 1) {
    return MakePipelineRunner(config, dims, std::move(model));
  }
  return [&config, model = std::move(model)](const Batch& batch) mutable {
    const at::Tensor loss =
        BatchLoss(config, fsdp::forward(model, batch.tokens), batch.targets);
    if (at::GradMode::is_enabled()) loss.backward();
    return fsdp::full_tensor(loss).detach();
  };
}

}  // namespace llama
