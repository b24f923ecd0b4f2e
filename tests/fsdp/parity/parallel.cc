// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/parity/parallel.h"

#include "c10/util/Exception.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "fsdp/parallel/tensor/styles.h"
#include "tests/fsdp/parity/gpt.h"

namespace fsdp::testing {
namespace {

ParallelizePlan LlamaPlan(bool sequence, bool cut_logits, bool tied) {
  const ParallelStyleOptions between{
      .output_layouts = sequence ? Placement(Shard(1)) : Replicate()};
  const ParallelStyle norm =
      sequence ? SequenceParallel() : ReplicateParallel();
  ParallelizePlan plan = {
      {"embed_tokens", RowwiseParallel(between)},
      {"layers.*.self_attn.[qkv]_proj", ColwiseParallel()},
      {"layers.*.self_attn.o_proj", RowwiseParallel(between)},
      {"layers.*.mlp.{gate,up}_proj", ColwiseParallel()},
      {"layers.*.mlp.down_proj", RowwiseParallel(between)},
      {"layers.*.*_layernorm", norm},
      {"norm", norm}};
  if (!tied) {
    ParallelStyleOptions logits;
    if (!cut_logits) logits.output_layouts = Replicate();
    plan.emplace_back("lm_head", ColwiseParallel(logits));
  }
  return plan;
}

// Queries, keys and values are one matrix, and parts of it are not heads. So
// the result is gathered, and each rank computes the whole attention.
ParallelizePlan GptPlan() {
  const ParallelStyleOptions whole{.output_layouts = Replicate()};
  return {{"tok", RowwiseParallel()},
          {"layers.*.attn.qkv", ColwiseParallel(whole)},
          {"layers.*.attn.out", RowwiseParallel()},
          {"layers.*.up", ColwiseParallel()},
          {"layers.*.down", RowwiseParallel()},
          {"head", ColwiseParallel(whole)}};
}

}  // namespace

void Parallelize(torch::nn::Module& model, const DeviceMesh& mesh,
                 const std::string& plan) {
  const bool is_gpt = model.as<GptImpl>() != nullptr;
  const bool cut_logits = plan == "sp_loss";
  const bool sequence = cut_logits || plan == "sp";
  TORCH_CHECK_VALUE(plan == "tp" || (sequence && !is_gpt), "'", plan,
                    "' is not a plan of this model");
  const bool tied = !model.named_children().contains("lm_head");
  parallelize_module(
      model, mesh, is_gpt ? GptPlan() : LlamaPlan(sequence, cut_logits, tied));
}

}  // namespace fsdp::testing
