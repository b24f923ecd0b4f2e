// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/fields/fsdp1.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"

namespace fsdp::config {
namespace {

constexpr ShardingStrategy kStrategies[] = {
    {"FULL_SHARD", 1, true, false, false},
    {"SHARD_GRAD_OP", 2, false, false, false},
    {"NO_SHARD", 3, false, false, true},
    {"HYBRID_SHARD", 4, true, true, false},
    {"HYBRID_SHARD_ZERO2", 5, false, true, false},
};

struct RemovedOption {
  absl::string_view name;
  // The value that asks for nothing; empty: every value is reported.
  absl::string_view harmless;
  absl::string_view why;
};

constexpr RemovedOption kRemoved[] = {
    {"activation_checkpointing_reentrant", "",
     "activations are computed again without a second graph, always"},
    {"auto_wrap", "true", "modules are always made groups of their own"},
    {"backward_prefetch", "",
     "the next group is always gathered before the gradients of the present "
     "one are computed (BACKWARD_PRE)"},
    {"backward_prefetch_policy", "",
     "the next group is always gathered before the gradients of the present "
     "one are computed (BACKWARD_PRE)"},
    {"backward_prefetch_limit", "",
     "one group is gathered ahead; set_modules_to_backward_prefetch lists "
     "more"},
    {"buffer_dtype", "", "buffers keep their own types"},
    {"cast_root_forward_inputs", "",
     "cast_forward_inputs is one option for all groups"},
    {"device_id", "", "the device follows from the mesh"},
    {"flatten_parameters", "", "parameters are never flattened"},
    {"forward_prefetch", "false",
     "the order of a model is not guessed; set_modules_to_forward_prefetch "
     "says it"},
    {"forward_prefetch_limit", "",
     "one group is gathered ahead; set_modules_to_forward_prefetch lists more"},
    {"keep_low_precision_grads", "false",
     "gradients have the type of their parameters"},
    {"limit_all_gathers", "",
     "memory is freed in the order of the streams, so there is nothing to "
     "limit"},
    {"optim_state_dict_config", "",
     "state dicts of optimizers follow state_dict_type"},
    {"param_init_fn", "",
     "a model on the meta device is initialised after it is sharded"},
    {"process_group", "", "groups follow from the mesh"},
    {"state_dict_config", "", "state dicts follow state_dict_type"},
    {"sync_module_states", "",
     "ranks are made equal when weights are loaded, see "
     "cpu_ram_efficient_loading"},
    {"te_checkpoint_wrapper", "false", "there is no Transformer Engine here"},
    {"te_shard_fp8_weight", "false", "there is no Transformer Engine here"},
    {"use_orig_params", "",
     "a module's own parameters are used, always, one by one"},
};

bool IsHarmless(const RemovedOption& option, const Node& node) {
  if (option.harmless.empty()) return false;
  const std::optional<bool> value = AsBool(node);
  return value.has_value() && BoolText(*value) == option.harmless;
}

bool IsUnknownPrefetch(const RemovedOption& option, const Node& node) {
  if (option.name != "backward_prefetch" || !node.is_scalar()) {
    return option.name == "backward_prefetch" && !node.is_scalar();
  }
  for (const absl::string_view known :
       {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", "1", "2", "null"}) {
    if (absl::EqualsIgnoreCase(node.text, known)) return false;
  }
  return true;
}

// Whether backward_prefetch names another order than BACKWARD_PRE. It trains
// the same apart from the order.
bool IsOtherPrefetch(const RemovedOption& option, const Node& node) {
  return option.name == "backward_prefetch" &&
         !absl::EqualsIgnoreCase(node.text, "BACKWARD_PRE") && node.text != "1";
}

void ReadOne(const RemovedOption& option, absl::string_view key,
             Section& section) {
  const Node* node = section.Find(key);
  if (node == nullptr || IsHarmless(option, *node)) return;
  if (IsUnknownPrefetch(option, *node)) {
    section.findings().Problem(
        node->place, "is not BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
    return;
  }
  if (IsOtherPrefetch(option, *node)) {
    section.findings().Changed(
        node->place, absl::StrCat("is read as BACKWARD_PRE: ", option.why));
    return;
  }
  section.Ignore(key, option.why);
}

}  // namespace

absl::Span<const ShardingStrategy> AllShardingStrategies() {
  return kStrategies;
}

const ShardingStrategy* FindShardingStrategy(absl::string_view text) {
  // torch also spells it _HYBRID_SHARD_ZERO2.
  const absl::string_view name = absl::StripPrefix(text, "_");
  for (const ShardingStrategy& strategy : kStrategies) {
    if (absl::EqualsIgnoreCase(strategy.name, name) ||
        absl::StrCat(strategy.number) == text) {
      return &strategy;
    }
  }
  return nullptr;
}

void ApplyShardingStrategy(const ShardingStrategy& strategy,
                           const SourceLocation& place, TrainConfig& config,
                           Findings& findings) {
  config.sharding.reshard_after_forward = Setting<ReshardSetting>(
      ReshardSetting(strategy.reshard_after_forward), place);
  MeshConfig& mesh = config.mesh;
  if (strategy.is_replicated) {
    ReadAsCopies(place, "is", mesh, findings);
    return;
  }
  const std::string reshard =
      absl::StrCat("is read as reshard_after_forward: ",
                   BoolText(strategy.reshard_after_forward));
  const bool has_degrees =
      mesh.data_parallel_replicate_degree.value() != 1 ||
      mesh.data_parallel_shard_degree.value() != kShardOverRest;
  if (!strategy.is_hybrid || has_degrees) {
    findings.Changed(place, reshard);
    return;
  }
  mesh.data_parallel_shard_degree = Setting<int64_t>(kShardWithinNode, place);
  findings.Changed(place,
                   absl::StrCat(reshard, ", with a copy on each machine"));
}

std::optional<absl::string_view> WhyRemoved(absl::string_view option) {
  for (const RemovedOption& removed : kRemoved) {
    if (removed.name == option) return removed.why;
  }
  return std::nullopt;
}

void ReadRemoved(absl::string_view prefix, Section& section) {
  for (const RemovedOption& option : kRemoved) {
    ReadOne(option, option.name, section);
    if (prefix.empty()) continue;
    ReadOne(option, absl::StrCat(prefix, option.name), section);
  }
}

}  // namespace fsdp::config
