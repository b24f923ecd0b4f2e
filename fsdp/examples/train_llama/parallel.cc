// Tested by tests/fsdp/examples/parallel_test.cc.
#include "fsdp/examples/train_llama/parallel.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/config/mesh_plan.h"
#include "fsdp/parallel/tensor/load_plan.h"
#include "fsdp/parallel/tensor/styles.h"

namespace llama {
namespace {

int64_t TensorParallel(const Config& config) {
  return *config.train.mesh.tensor_parallel_degree;
}

}  // namespace

absl::Status CheckParallel(const Config& config) {
  const bool has_tp = TensorParallel(config) > 1;
  const bool has_plan = !config.plan.empty();
  const int64_t cp = config.context_parallel;
  const std::vector<std::pair<bool, std::string>> mistakes = {
      {config.sequence_parallel && !has_tp,
       "--sp requires --tp=N: it cuts sequences over the ranks of tensor "
       "parallelism, between the layers that those share"},
      {has_plan && !has_tp,
       "--plan requires --tp=N, the number of ranks that share each layer"},
      {has_plan && config.sequence_parallel,
       "--sp belongs to the plan that is built in; the file of --plan says it "
       "itself, with sequence_parallel and output_layouts: shard(1)"},
      {config.seq_len % (2 * cp) != 0 && cp > 1,
       absl::StrCat("--cp=", cp, " requires a --seq-len that is a multiple of ",
                    2 * cp, "; ", config.seq_len, " is not")}};
  for (const auto& [is_made, what] : mistakes) {
    if (is_made) return absl::InvalidArgumentError(what);
  }
  return absl::OkStatus();
}

absl::StatusOr<fsdp::ParallelDegrees> DegreesOf(const Config& config,
                                                int64_t world_size,
                                                int64_t local_world_size) {
  const int64_t cp = config.context_parallel;
  if (world_size % cp != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cp=", cp, " does not divide ", world_size,
        " ranks; start a multiple of ", cp * TensorParallel(config)));
  }
  const absl::StatusOr<fsdp::MeshPlan> plan =
      fsdp::plan_mesh(config.train.mesh, world_size / cp, local_world_size);
  if (!plan.ok()) return plan.status();
  return fsdp::ParallelDegrees{.dp_replicate = plan->replicate,
                               .dp_shard = plan->shard,
                               .cp = cp,
                               .tp = plan->tensor_parallel};
}

fsdp::DeviceMesh DataParallelMesh(const fsdp::ParallelDims& dims) {
  // A view of the same groups, in which an axis may have one rank.
  const std::vector<std::string> axes = {"pp", "dp_replicate", "fsdp", "tp"};
  std::vector<int64_t> shape;
  for (const std::string& axis : axes) {
    shape.push_back(dims.degrees().size(axis));
  }
  const fsdp::DeviceMesh dense = dims.world_mesh().unflatten(shape, axes);
  return dims.degrees().enabled("dp_replicate")
             ? dense[{"dp_replicate", "fsdp"}]
             : dense["fsdp"];
}

fsdp::ParallelizePlan BuiltInPlan(const LlamaImpl& model,
                                  bool sequence_parallel) {
  fsdp::ParallelStyleOptions sum;
  if (sequence_parallel) sum.output_layouts = fsdp::Shard(1);
  fsdp::ParallelizePlan plan = {
      {"embed_tokens", fsdp::RowwiseParallel(sum)},
      {"layers.*.self_attn.[qkv]_proj", fsdp::ColwiseParallel()},
      {"layers.*.self_attn.o_proj", fsdp::RowwiseParallel(sum)},
      {"layers.*.mlp.{gate,up}_proj", fsdp::ColwiseParallel()},
      {"layers.*.mlp.down_proj", fsdp::RowwiseParallel(sum)}};
  if (sequence_parallel) {
    plan.emplace_back("layers.*.*_layernorm", fsdp::SequenceParallel());
    plan.emplace_back("norm", fsdp::SequenceParallel());
  }
  if (model.lm_head) plan.emplace_back("lm_head", fsdp::ColwiseParallel());
  return plan;
}

fsdp::ParallelizePlan PlanOf(const Config& config, const LlamaImpl& model) {
  return config.plan.empty() ? BuiltInPlan(model, config.sequence_parallel)
                             : fsdp::load_plan(config.plan);
}

std::string WarningOf(const Config& config) {
  const int64_t tp = TensorParallel(config);
  const ModelOptions& model = config.model;
  if (model.num_heads % tp == 0 && model.num_kv_heads % tp == 0) return "";
  return absl::StrCat(
      "warning: --tp=", tp, " does not divide the ", model.num_heads,
      " heads or the ", model.num_kv_heads,
      " of keys and values; every rank gathers those that it does not, and "
      "computes them whole");
}

}  // namespace llama
