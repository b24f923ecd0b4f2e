// SPDX-License-Identifier: Apache-2.0
// Checks the parallel options, and cuts the model by a plan.
//
// Tested by tests/fsdp/examples/parallel_test.cc.
#include "fsdp/examples/train_llama/parallel.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/explain/mesh_plan.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/parallel/tensor/load_plan.h"
#include "fsdp/parallel/tensor/plan_match.h"
#include "fsdp/parallel/tensor/styles.h"

namespace llama {
namespace {

int64_t TensorParallel(const Config& config) {
  return *config.train.mesh.tensor_parallel_degree;
}

// Whether the --config file says how to cut layers.
bool HasPlan(const fsdp::TrainConfig& config) {
  return !config.mesh.parallelize_plan->entries().empty();
}

// Whether ranks that share sequences divide the heads of attention.
bool DividesHeads(const fsdp::TrainConfig& config) {
  return *config.mesh.context_parallel_degree > 1 &&
         *config.mesh.context_parallel_method == "ulysses";
}

// Options that contradict --pp, and options that require it.
std::vector<std::pair<bool, std::string>> PipelineMistakes(
    const Config& config) {
  const int64_t pp = *config.train.mesh.pipeline_parallel_degree;
  const int64_t num_layers = config.model.num_layers;
  const int64_t tp = TensorParallel(config);
  const bool has_pp = pp > 1;
  const bool is_1f1b = config.pipeline_schedule == "1f1b";
  const int64_t num_stages = pp * StagesPerRank(config);
  return {
      {!has_pp &&
           (config.microbatches > 0 || !is_1f1b || config.stages_per_rank > 0),
       "--microbatches, --pp-schedule and --pp-stages require --pp=N, the "
       "number of ranks that a batch passes"},
      {has_pp && config.model.tied_embeddings,
       "--tied-embeddings shares one weight between the first and the last "
       "stage; leave it out, or --pp"},
      {has_pp && num_layers < num_stages,
       absl::StrCat(
           "--pp=", pp,
           num_stages == pp ? ""
                            : absl::StrCat(", with ", StagesPerRank(config),
                                           " stages on each,"),
           " requires ",
           num_stages == pp ? "as" : absl::StrCat(num_stages, " stages and as"),
           " many --layers, for each stage to have one; ", num_layers,
           " are fewer")},
      {has_pp && *config.train.mesh.context_parallel_degree > 1,
       "--pp cannot be combined with --cp, because stages do not pass on parts "
       "of sequences; for long sequences write --tp=N --sp instead of --cp"},
      {has_pp && config.sequence_parallel && config.seq_len % tp != 0,
       absl::StrCat("--pp with --sp requires a --seq-len that is a multiple of "
                    "--tp=",
                    tp, "; ", config.seq_len, " is not")},
      {has_pp && is_1f1b && config.microbatches > 0 && config.microbatches < pp,
       absl::StrCat("--microbatches=", config.microbatches,
                    " leaves stages without work: write at least ", pp,
                    ", the number of stages, or --pp-schedule=gpipe")},
      {has_pp && *config.train.checkpoint.cpu_ram_efficient_loading,
       "--pp requires cpu_ram_efficient_loading: false, because no rank has "
       "the weights of all stages"}};
}

}  // namespace

fsdp::ScheduleKind PipelineScheduleKind(const Config& config) {
  const std::map<std::string, fsdp::ScheduleKind> kinds = {
      {"gpipe", fsdp::ScheduleKind::kGPipe},
      {"1f1b", fsdp::ScheduleKind::k1F1B},
      {"interleaved", fsdp::ScheduleKind::kInterleaved1F1B},
      {"zero-bubble", fsdp::ScheduleKind::kInterleavedZeroBubble},
      {"zbv", fsdp::ScheduleKind::kZBVZeroBubble},
      {"dualpipev", fsdp::ScheduleKind::kDualPipeV}};
  return kinds.at(config.pipeline_schedule);
}

int64_t StagesPerRank(const Config& config) {
  if (config.stages_per_rank > 0) return config.stages_per_rank;
  const bool has_one =
      config.pipeline_schedule == "gpipe" || config.pipeline_schedule == "1f1b";
  return has_one ? 1 : 2;
}

absl::Status CheckParallel(const Config& config) {
  const bool has_tp = TensorParallel(config) > 1;
  const bool has_plan = !config.plan.empty();
  const int64_t cp = *config.train.mesh.context_parallel_degree;
  std::vector<std::pair<bool, std::string>> mistakes = PipelineMistakes(config);
  const std::vector<std::pair<bool, std::string>> others = {
      {config.sequence_parallel && !has_tp,
       "--sp requires --tp=N: it cuts sequences over the ranks of tensor "
       "parallelism, between the layers that those share"},
      {has_plan && !has_tp,
       "--plan requires --tp=N, the number of ranks that share each layer"},
      {(has_plan || HasPlan(config.train)) && config.sequence_parallel,
       "--sp belongs to the built-in plan; the --plan file or the --config "
       "says it itself, with sequence_parallel and output_layouts: shard(1)"},
      {config.seq_len % (2 * cp) != 0 && cp > 1,
       absl::StrCat("--cp=", cp, " requires a --seq-len that is a multiple of ",
                    2 * cp, "; ", config.seq_len, " is not")},
      {DividesHeads(config.train) &&
           (config.model.num_heads % (cp * TensorParallel(config)) != 0 ||
            config.model.num_kv_heads % (cp * TensorParallel(config)) != 0),
       absl::StrCat("--cp-method=ulysses divides the ", config.model.num_heads,
                    " heads, and the ", config.model.num_kv_heads,
                    " of keys and values, among ", cp * TensorParallel(config),
                    " ranks of --cp and --tp, which must divide both; "
                    "--cp-method=alltoall need not")}};
  mistakes.insert(mistakes.end(), others.begin(), others.end());
  const ModelOptions& model = config.model;
  if (model.num_experts == 0) {
    mistakes.emplace_back(*config.train.mesh.expert_parallel_degree > 1,
                          "--ep requires --experts=E, which the ranks divide");
    mistakes.emplace_back(model.top_k != ModelOptions().top_k,
                          "--top-k requires --experts=E: it says how many "
                          "experts a token has");
  }
  mistakes.emplace_back(
      model.num_experts % *config.train.mesh.expert_parallel_degree != 0,
      absl::StrCat("--ep=", *config.train.mesh.expert_parallel_degree,
                   " does not divide the ", model.num_experts,
                   " of --experts"));
  for (const auto& [is_made, what] : mistakes) {
    if (is_made) return absl::InvalidArgumentError(what);
  }
  return absl::OkStatus();
}

absl::StatusOr<fsdp::ParallelDegrees> ChooseDegrees(const Config& config,
                                                    int64_t world_size,
                                                    int64_t local_world_size) {
  const absl::StatusOr<fsdp::MeshPlan> plan =
      fsdp::plan_mesh(config.train.mesh, world_size, local_world_size);
  if (!plan.ok()) return plan.status();
  return fsdp::ParallelDegrees{.pp = plan->pipeline_parallel,
                               .dp_replicate = plan->replicate,
                               .dp_shard = plan->shard,
                               .cp = plan->context_parallel,
                               .tp = plan->tensor_parallel,
                               .ep = plan->expert_parallel,
                               .etp = plan->expert_tensor_parallel};
}

absl::Status FitMicrobatches(int64_t num_readers, Config* config) {
  const int64_t pp = *config->train.mesh.pipeline_parallel_degree;
  if (pp == 1) return absl::OkStatus();
  const int64_t stages_per_rank = StagesPerRank(*config);
  if (config->microbatches == 0) {
    config->microbatches = pp * stages_per_rank;
  }
  const absl::Status possible = fsdp::CatchTorch([&] {
    fsdp::MakePipelineOrder(PipelineScheduleKind(*config),
                            {pp, stages_per_rank, config->microbatches});
    return absl::OkStatus();
  });
  if (!possible.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--pp-schedule=", config->pipeline_schedule, ": ", possible.message()));
  }
  const int64_t num_sequences = config->batch / num_readers;
  if (num_sequences % config->microbatches == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--microbatches=", config->microbatches, " does not divide the ",
      num_sequences, " sequences that a rank reads, --batch=", config->batch,
      " divided by ", num_readers, " readers; a --batch of ",
      config->microbatches * num_readers, " and its multiples can be divided"));
}

fsdp::ParallelizePlan BuiltInPlan(const LlamaImpl& model,
                                  bool sequence_parallel) {
  fsdp::ParallelStyleOptions sum;
  if (sequence_parallel) sum.output_layouts = fsdp::Shard(1);
  fsdp::ParallelStyle embedding = fsdp::RowwiseParallel(sum);
  embedding.embedding = true;
  const bool has_experts = model.options().num_experts > 0;
  fsdp::ParallelizePlan plan = {
      {"embed_tokens", embedding},
      {"layers.*.self_attn.[qkv]_proj", fsdp::ColwiseParallel()},
      {"layers.*.self_attn.o_proj", fsdp::RowwiseParallel(sum)}};
  if (!has_experts) {
    plan.emplace_back("layers.*.mlp.{gate,up}_proj", fsdp::ColwiseParallel());
    plan.emplace_back("layers.*.mlp.down_proj", fsdp::RowwiseParallel(sum));
  }
  if (sequence_parallel) {
    plan.emplace_back("layers.*.*_layernorm", fsdp::SequenceParallel());
    plan.emplace_back("norm", fsdp::SequenceParallel());
  }
  if (model.lm_head) plan.emplace_back("lm_head", fsdp::ColwiseParallel());
  return plan;
}

fsdp::ParallelizePlan ChoosePlan(const Config& config, LlamaImpl& model) {
  fsdp::ParallelizePlan plan =
      !config.plan.empty() ? fsdp::load_plan(config.plan)
      : HasPlan(config.train)
          ? fsdp::to_parallelize_plan(*config.train.mesh.parallelize_plan)
          : BuiltInPlan(model, config.sequence_parallel);
  if (*config.train.mesh.pipeline_parallel_degree == 1) return plan;
  // Entries that not even the whole model has stay, for the warning.
  const fsdp::MetaDeviceGuard on_meta;
  Llama whole(config.model);
  std::erase_if(plan, [&](const auto& entry) {
    return fsdp::MatchModules(model, entry.first).empty() &&
           !fsdp::MatchModules(*whole, entry.first).empty();
  });
  return plan;
}

void CutLayers(const Config& config, const fsdp::ParallelDims& dims,
               LlamaImpl& model) {
  if (dims.degrees().tp > 1) {
    fsdp::parallelize_module(model, dims.get_mesh("tp"),
                             ChoosePlan(config, model));
  }
  fsdp::parallelize_experts(model, dims);
}

std::string HeadsWarning(const Config& config) {
  const int64_t tp = TensorParallel(config);
  const ModelOptions& model = config.model;
  if (model.num_heads % tp == 0 && model.num_kv_heads % tp == 0) return "";
  return absl::StrCat("warning: --tp=", tp, " does not divide the ",
                      model.num_heads, " heads or the ", model.num_kv_heads,
                      " of keys and values; every rank gathers those that it "
                      "does not, and computes them whole");
}

}  // namespace llama
