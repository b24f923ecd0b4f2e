// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/torchtitan/parallelism.h"

#include <cstdint>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/keys.h"

namespace fsdp::config {
namespace {

// How parallelism works in TorchTitan; the degrees say where it is used.
void PassOverDetails(Section& section) {
  PassOver(section, {"context_parallel_load_balancer",
                     "expert_parallel_comm_backend",
                     "module_fqns_per_model_part",
                     "fsdp_defer_gradient_reduction",
                     "fsdp_symm_mem_scope",
                     "pipeline_parallel_expert_parallel_overlap",
                     "pipeline_parallel_max_outstanding_sends",
                     "pipeline_parallel_module_fqns_per_model_part",
                     "pp_max_unsharded_active_stages",
                     "pp_num_unshard_lookahead_factor",
                     "save_parallelism_file",
                     "pipeline_parallel_first_stage_less_layers",
                     "pipeline_parallel_last_stage_less_layers",
                     "pipeline_parallel_layers_per_stage",
                     "pipeline_parallel_microbatch_size",
                     "pipeline_parallel_schedule",
                     "pipeline_parallel_schedule_csv",
                     "pipeline_parallel_split_points",
                     "pipeline_parallel_microbatches",
                     "num_pp_microbatches",
                     "context_parallel_ptrr_mask_key",
                     "enable_fsdp_symm_mem",
                     "enable_sequence_parallel",
                     "spmd_backend"});
}

// Reads the degrees from any section that a version has them in.
void ReadDegrees(Section& section, MeshConfig& mesh) {
  ReadDegree(section, "data_parallel_replicate_degree", 1,
             mesh.data_parallel_replicate_degree);
  ReadDegree(
      section,
      Spelling(section, {"data_parallel_shard_degree", "data_parallel_degree"}),
      kShardOverRest, mesh.data_parallel_shard_degree);
  ReadDegree(section, "tensor_parallel_degree", 1, mesh.tensor_parallel_degree);
  ReadDegree(section, "context_parallel_degree", 1,
             mesh.context_parallel_degree);
  ReadContextMethod(section, "context_parallel_rotate_method",
                    mesh.context_parallel_method);
  ReadDegree(section, "pipeline_parallel_degree", 1,
             mesh.pipeline_parallel_degree);
  ReadDegree(section, "expert_parallel_degree", 1, mesh.expert_parallel_degree);
  ReadDegree(section, "expert_tensor_parallel_degree", 1,
             mesh.expert_tensor_parallel_degree);
}

}  // namespace

void ReadOlderDegrees(const Node& parallelism, Section& training,
                      Section& experimental, MeshConfig& mesh) {
  for (Section* section : {&training, &experimental}) {
    for (const auto& [key, value] : section->node().entries) {
      if (!absl::EndsWith(key, "_parallel_degree") &&
          !absl::StartsWith(key, "data_parallel_")) {
        continue;
      }
      if (parallelism.Find(key) == nullptr) continue;
      section->findings().Problem(
          value.place,
          absl::StrCat("is also given in [parallelism]; keep the "
                       "one that this version of TorchTitan reads"));
    }
    ReadDegrees(*section, mesh);
    PassOverDetails(*section);
    PassOver(*section, {"enable_loss_parallel"});
    IgnoreWhenOn(*section, "enable_async_tensor_parallel",
                 "it is an optimization of torch.compile");
    IgnoreWhenOn(*section, "enable_compiled_autograd",
                 "modules run as they are");
  }
  const Choices<bool> kTypes = {{"fsdp", true}, {"ddp", false}};
  Setting<bool> is_sharded = true;
  if (training.Read("data_parallel_type", kTypes, is_sharded) && !*is_sharded) {
    ReadAsCopies(*is_sharded.place(), "is ddp, and is", mesh,
                 training.findings());
  }
}

void ReadParallelism(Section section, TrainConfig& config) {
  ReadDegrees(section, config.mesh);
  const Choices<ReshardSetting> kReshard = {{"default", ReshardSetting()},
                                            {"always", ReshardSetting(true)},
                                            {"never", ReshardSetting(false)}};
  Setting<ReshardSetting>& reshard = config.sharding.reshard_after_forward;
  section.Read("fsdp_reshard_after_forward", kReshard, reshard);
  const Setting<int64_t>& stages = config.mesh.pipeline_parallel_degree;
  if (*stages > 1 && std::holds_alternative<std::monostate>(*reshard)) {
    // Parameters are not gathered again for each microbatch.
    reshard = Setting<ReshardSetting>(
        ReshardSetting(false),
        reshard.place().value_or(stages.place().value_or(SourceLocation{})));
  }
  Setting<int64_t>& cut = config.mesh.expert_tensor_parallel_degree;
  if (*cut > 1 && *config.mesh.expert_parallel_degree == 1) {
    section.Ignore("expert_tensor_parallel_degree",
                   "there is no expert_parallel_degree");
    cut = int64_t{1};
  }
  PassOverDetails(section);
  IgnoreWhenOn(section, "enable_async_tensor_parallel",
               "it is an optimization of torch.compile");
  IgnoreWhenOn(section, "enable_compiled_autograd", "modules run as they are");
  IgnoreWhenOn(section, "disable_loss_parallel",
               "the plan decides: the loss of logits that it leaves cut is "
               "parallel");
  section.Finish();
}

}  // namespace fsdp::config
