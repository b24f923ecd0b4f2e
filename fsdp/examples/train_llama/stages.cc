// SPDX-License-Identifier: Apache-2.0
// Runs a batch, whole or through the pipeline's stages.
//
// Tested by tests/fsdp/examples/stages_test.cc.
#include "fsdp/examples/train_llama/stages.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "fsdp/examples/train_llama/parallel.h"
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

// The places of this rank's stages.
std::vector<fsdp::StagePlace> Places(const Config& config,
                                     const fsdp::ParallelDims& dims) {
  const fsdp::DeviceMesh pp = dims.get_mesh("pp");
  const fsdp::PipelineShape shape{pp.size(), StagesPerRank(config),
                                  config.microbatches};
  std::vector<fsdp::StagePlace> places;
  for (const int64_t stage : fsdp::StagesOnRank(PipelineScheduleKind(config),
                                                shape, pp.get_local_rank())) {
    places.push_back({stage, shape.num_stages()});
  }
  return places;
}

StageModules StageNames(const Config& config, const fsdp::StagePlace& place) {
  // With 256 tokens the first and the last module cost next to nothing.
  const auto names =
      fsdp::pipeline_module_names(place.num_stages, config.model.num_layers,
                                  {.input_weight = 0,
                                   .output_weight = 0,
                                   .inputs = {"embed_tokens"},
                                   .outputs = {"norm", "lm_head"}});
  return {names.at(static_cast<size_t>(place.stage_index))};
}

// With --sp, each tensor parallel rank in a stage passes on a part of the
// sequences; otherwise each passes on the whole.
fsdp::PipelineStage MakeStage(const Config& config,
                              const fsdp::ParallelDims& dims, Llama model,
                              const fsdp::StagePlace& place) {
  const fsdp::DeviceMesh pp = dims.get_mesh("pp");
  const std::optional<fsdp::DeviceMesh> tp = dims.get_optional_mesh("tp");
  const fsdp::Placement between = config.sequence_parallel
                                      ? fsdp::Placement(fsdp::Shard(1))
                                      : fsdp::Placement(fsdp::Replicate());
  const bool is_first = place.stage_index == 0;
  const bool is_last = place.stage_index == place.num_stages - 1;
  const StageModules modules = StageNames(config, place);
  const auto forward = [=](const fsdp::StageTensors& inputs) mutable {
    at::Tensor h = inputs[0];
    if (tp.has_value() && !is_first) h = fsdp::from_local(h, *tp, {between});
    h = fsdp::forward(model, h, modules);
    if (tp.has_value() && !is_last) {
      h = fsdp::to_local(fsdp::redistribute(h, *tp, between));
    }
    return fsdp::StageTensors{h};
  };
  return fsdp::PipelineStage(model.ptr(), forward, pp, place);
}

BatchRunner MakePipelineRunner(const Config& config,
                               const fsdp::ParallelDims& dims, Llama model) {
  std::vector<fsdp::PipelineStage> stages;
  for (const fsdp::StagePlace& place : Places(config, dims)) {
    stages.push_back(MakeStage(config, dims, model, place));
  }
  const auto loss_of = [&config](const at::Tensor& logits,
                                 const at::Tensor& targets) {
    return BatchLoss(config, logits, targets);
  };
  // The runner owns it, through std::function, which copies all that it holds.
  const std::shared_ptr<fsdp::PipelineSchedule> schedule =
      fsdp::MakeSchedule(PipelineScheduleKind(config), std::move(stages),
                         config.microbatches, loss_of);
  const int64_t num_ranks = dims.get_mesh("pp").size();
  return [schedule, num_ranks](const Batch& batch) {
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
    return at::stack(losses).mean() * num_ranks;
  };
}

}  // namespace

void KeepStage(const Config& config, const fsdp::ParallelDims& dims,
               Llama& model) {
  if (*config.train.mesh.pipeline_parallel_degree == 1) return;
  std::vector<std::string> kept;
  for (const fsdp::StagePlace& place : Places(config, dims)) {
    const StageModules modules = StageNames(config, place);
    kept.insert(kept.end(), modules.names.begin(), modules.names.end());
  }
  model->KeepModules(kept);
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
