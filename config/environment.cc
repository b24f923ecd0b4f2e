// SPDX-License-Identifier: Apache-2.0
// Reads the variables that `accelerate launch` sets for the processes it
// starts. They become a map like the file's fsdp_config and are read the same
// way. The launcher sets nearly all of them whether or not anybody asked for
// them, so variables without effect do not get a finding.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/fsdp1.h"
#include "config/dialects/fields/fsdp_options.h"
#include "config/dialects/fields/mesh_sizes.h"
#include "config/document/section.h"
#include "config/read_config.h"

namespace fsdp {
namespace {

using config::Node;

// The variables with a prefix, as a map; keys are in lower case, without it.
Node VariablesAsMap(const std::vector<std::string>& variables,
                    absl::string_view prefix) {
  Node map;
  map.kind = Node::Kind::kMap;
  map.place = {.file = "environment"};
  for (const absl::string_view variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == absl::string_view::npos) continue;
    const absl::string_view name = variable.substr(0, equals);
    const absl::string_view value = variable.substr(equals + 1);
    // Python's text for no value.
    if (value.empty() || value == "None") continue;
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    std::string key = absl::AsciiStrToLower(rest);
    if (map.Find(key) != nullptr) continue;
    Node node;
    node.kind = Node::Kind::kString;
    node.text = std::string(value);
    node.place = {.file = "environment", .key = std::string(name)};
    map.entries.push_back({std::move(key), std::move(node)});
  }
  return map;
}

void Remove(absl::string_view key, Node& map) {
  const auto removed =
      std::remove_if(map.entries.begin(), map.entries.end(),
                     [&](const auto& entry) { return entry.key == key; });
  map.entries.erase(removed, map.entries.end());
}

// Gives a variable's option the name that it has in the file.
void Rename(absl::string_view from, absl::string_view to, Node& map) {
  for (auto& [key, node] : map.entries) {
    if (key == from) key = std::string(to);
  }
}

bool IsTrue(const Node& map, absl::string_view key, bool otherwise) {
  const Node* node = map.Find(key);
  return node == nullptr ? otherwise
                         : config::AsBool(*node).value_or(otherwise);
}

// The launcher always sets sharding_strategy and reshard_after_forward, to
// FULL_SHARD and true if the file names neither.
void ChooseStrategy(bool is_version_1, Node& options) {
  const Node* strategy = options.Find("sharding_strategy");
  const Node* reshard = options.Find("reshard_after_forward");
  if (!is_version_1) {
    Remove("sharding_strategy", options);
    return;
  }
  if (strategy == nullptr || reshard == nullptr) return;
  const bool is_default = absl::EqualsIgnoreCase(strategy->text, "FULL_SHARD");
  const bool says_more = config::FindShardingStrategy(reshard->text) != nullptr;
  Remove(
      is_default && says_more ? "sharding_strategy" : "reshard_after_forward",
      options);
}

// accelerate's default for how each version saves.
StateDictType DefaultStateDictType(int64_t version) {
  return version == 1 ? StateDictType::kFullStateDict
                      : StateDictType::kShardedStateDict;
}

// If nobody wrote the state dict's type, it is the version's default, which a
// variable may have changed.
void FollowVersion(int64_t version_before, TrainConfig& base) {
  const int64_t version = *base.sharding.fsdp_version;
  Setting<StateDictType>& type = base.checkpoint.state_dict_type;
  if (version != version_before && !type.place().has_value() &&
      *type == DefaultStateDictType(version_before)) {
    type = DefaultStateDictType(version);
  }
}

// A launcher that was told to shard does so even if the file is for copies: the
// variables have all the file's sharding options.
void SwitchOn(const SourceLocation& place, TrainConfig& base) {
  base.mesh.data_parallel_replicate_degree = Setting<int64_t>(1, place);
  base.mesh.data_parallel_shard_degree =
      Setting<int64_t>(kShardOverRest, place);
  base.sharding.fsdp_version = 1;
  base.checkpoint.state_dict_type = DefaultStateDictType(1);
  // FSDP reduces in this dtype; DDP does not.
  base.precision.reduce_dtype = base.precision.param_dtype;
}

void ReadOptions(const std::vector<std::string>& variables, TrainConfig& base,
                 Findings& findings) {
  Node options = VariablesAsMap(variables, "FSDP_");
  Rename("transformer_cls_to_wrap", "transformer_layer_cls_to_wrap", options);
  for (const absl::string_view unasked :
       {"use_orig_params", "sync_module_states", "backward_prefetch"}) {
    Remove(unasked, options);
  }
  const int64_t version_before = *base.sharding.fsdp_version;
  const Node* version = options.Find("version");
  ChooseStrategy(version == nullptr ? *base.sharding.fsdp_version == 1
                                    : version->text == "1",
                 options);
  config::Section section(options, findings);
  config::ReadFsdpOptions(section, base);
  section.Read("offload_params", base.sharding.cpu_offload);
  section.Read("activation_checkpointing_offload",
               base.sharding.activation_cpu_offload);
  section.FinishLenient("accelerate has no such variables");
  FollowVersion(version_before, base);
}

void ReadParallelism(const std::vector<std::string>& variables,
                     TrainConfig& base, Findings& findings) {
  const Node options = VariablesAsMap(variables, "PARALLELISM_CONFIG_");
  config::Section section(options, findings);
  config::ReadParallelismOptions(section, base.mesh);
  section.FinishLenient("accelerate has no such variables");
}

}  // namespace

void read_environment(const std::vector<std::string>& variables,
                      TrainConfig& base, Findings& findings) {
  const Node accelerate = VariablesAsMap(variables, "ACCELERATE_");
  config::Section section(accelerate, findings);
  config::RefuseTrue("use_deepspeed", "there is no DeepSpeed here", section);
  config::RefuseTrue("use_megatron_lm", "there is no Megatron-LM here",
                     section);
  config::ReadMixedPrecision("mixed_precision", section, base);
  const bool are_copies = config::AreCopies(base.mesh);
  const Node* use_fsdp = accelerate.Find("use_fsdp");
  const bool is_on = IsTrue(accelerate, "use_fsdp", !are_copies);
  if (are_copies && is_on) {
    SwitchOn(use_fsdp->place, base);
  } else if (are_copies) {
    const auto type = base.precision.param_dtype;
    config::CastCopies(*type, type.place().value_or(SourceLocation{}),
                       base.precision);
  }
  section.Read("gradient_accumulation_steps", config::IntegerRange{.least = 1},
               base.loop.gradient_accumulation_steps);
  // The degrees come first because a strategy's meaning depends on them.
  if (IsTrue(accelerate, "use_parallelism_config", false)) {
    ReadParallelism(variables, base, findings);
  }
  if (is_on) {
    ReadOptions(variables, base, findings);
  }
}

}  // namespace fsdp
