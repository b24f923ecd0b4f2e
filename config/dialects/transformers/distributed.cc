// SPDX-License-Identifier: Apache-2.0
// As of transformers 5.23. Each size is a number of ranks; none of them may
// stand for "all remaining ranks".
//
// Tested by tests/config/dialects/transformers/distributed_test.cc.
#include "config/dialects/transformers/distributed.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

void ReadDistributedSizes(Section& section, MeshConfig& mesh) {
  constexpr IntegerRange kDegree{.least = 1};
  mesh.data_parallel_shard_degree = int64_t{1};
  section.Read("fsdp_size", kDegree, mesh.data_parallel_shard_degree);
  section.Read("dp_replicate_size", kDegree,
               mesh.data_parallel_replicate_degree);
  section.Read("tp_size", kDegree, mesh.tensor_parallel_degree);
  section.Read("pp_size", kDegree, mesh.pipeline_parallel_degree);
  section.Read("ep_size", kDegree, mesh.expert_parallel_degree);
  Setting<bool> old_experts;
  if (section.Read("enable_expert_parallel", old_experts) && *old_experts &&
      section.Find("ep_size") == nullptr) {
    mesh.expert_parallel_degree =
        Setting<int64_t>(*mesh.tensor_parallel_degree, *old_experts.place());
  }
}

// A plan changes the model's own rules, which the program has.
void ReadPlans(Section& section) {
  const Node* tensor = section.Find("tp_plan");
  if (tensor != nullptr && section.Find("tp_size") == nullptr) {
    section.findings().Problem(
        tensor->place,
        "makes tp_size the rest of the ranks; write tp_size as a number");
  }
  for (const absl::string_view plan : {"tp_plan", "ep_plan"}) {
    section.Ignore(plan,
                   "it changes the plan of a model of transformers; give "
                   "PrepareOptions::parallelize_plan");
  }
  const Node* shards = section.Find("fsdp_plan");
  if (shards == nullptr) return;
  Section rules(*shards, section.findings());
  for (const auto& [module, style] : shards->entries) {
    Setting<bool> unused;
    rules.Read(
        module,
        Choices<bool>{{"free_full_weight", true}, {"keep_full_weight", true}},
        unused);
  }
  section.Ignore("fsdp_plan",
                 "the layers are groups; PrepareOptions::layers names others");
}

// DistributedConfig itself refuses these sizes.
void CheckDistributedSizes(const MeshConfig& mesh, Findings& findings) {
  const int64_t shard = *mesh.data_parallel_shard_degree;
  const int64_t tensor = *mesh.tensor_parallel_degree;
  const Setting<int64_t>& expert = mesh.expert_parallel_degree;
  const bool divides = *expert % tensor == 0 && shard % (*expert / tensor) == 0;
  if (*expert > 1 && !divides) {
    findings.Problem(
        SettingPlace(expert, "ep_size"),
        absl::StrCat("is ", *expert, ", not a multiple of tp_size, ", tensor,
                     ", that divides fsdp_size times it, ", shard, " times ",
                     tensor));
  }
  const Setting<int64_t>& stages = mesh.pipeline_parallel_degree;
  const bool has_data = shard > 1 || *mesh.data_parallel_replicate_degree > 1;
  if (*stages > 1 && has_data) {
    findings.Problem(SettingPlace(stages, "pp_size"),
                     absl::StrCat("is ", *stages,
                                  ", which transformers refuses together with "
                                  "fsdp_size or dp_replicate_size"));
  }
}

void ReadDistributedPrecision(Section& section, PrecisionConfig& precision) {
  Setting<bool> is_mixed;
  if (!section.Read("fsdp_mixed_precision", is_mixed) || !*is_mixed) return;
  precision.param_dtype = Some(dcp::DType::kBFloat16, *is_mixed.place());
  precision.reduce_dtype = Some(dcp::DType::kFloat32, *is_mixed.place());
}

}  // namespace

bool IsDistributedConfig(const Node& root) {
  for (const absl::string_view sure :
       {"fsdp_size", "fsdp_plan", "fsdp_cpu_offload", "fsdp_mixed_precision",
        "ep_implementation"}) {
    if (root.Find(sure) != nullptr) return true;
  }
  int count = 0;
  for (const absl::string_view typical :
       {"tp_size", "tp_plan", "pp_size", "ep_size", "ep_plan",
        "dp_replicate_size", "enable_expert_parallel",
        "enable_sequence_parallel"}) {
    if (root.Find(typical) != nullptr) ++count;
  }
  return count > 1;
}

void ReadDistributedConfig(const Node& node, TrainConfig& config,
                           Findings& findings) {
  Section section(node, findings);
  // The layers are freed; other parameters, mainly the head, are kept.
  config.sharding.reshard_after_forward = ReshardSetting();
  ReadDistributedSizes(section, config.mesh);
  ReadPlans(section);
  CheckDistributedSizes(config.mesh, findings);
  section.Read("fsdp_cpu_offload", config.sharding.cpu_offload);
  ReadDistributedPrecision(section, config.precision);
  section.Ignore("ep_implementation", "there is one way to reach experts");
  Setting<bool> sequences;
  if (section.Read("enable_sequence_parallel", sequences) && *sequences) {
    section.Ignore("enable_sequence_parallel",
                   "transformers does not read it yet");
  }
  section.Finish();
}

}  // namespace fsdp::config
