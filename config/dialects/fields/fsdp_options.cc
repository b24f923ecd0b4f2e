// SPDX-License-Identifier: Apache-2.0
// Reads accelerate's FSDP options by version.
//
// Tested by tests/config/dialects/accelerate/read_test.cc.
#include "config/dialects/fields/fsdp_options.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/fsdp1.h"
#include "config/document/document.h"

namespace fsdp::config {
namespace {

constexpr absl::string_view kPrefix = "fsdp_";

void ReadVersion(Section& section, TrainConfig& config) {
  section.Read(OptionKey("version", section),
               IntegerRange{.least = 1, .most = 2},
               config.sharding.fsdp_version);
}

// For version 2: true or false. A strategy here is a mistake; the message gives
// a hint.
void ReadReshard(absl::string_view key, const Node& node, Section& section,
                 TrainConfig& config) {
  const ShardingStrategy* strategy =
      AsBool(node).has_value() || !node.is_scalar()
          ? nullptr
          : FindShardingStrategy(node.text);
  if (strategy != nullptr) {
    const bool is_mesh = strategy->is_hybrid || strategy->is_replicated;
    section.findings().Problem(
        node.place,
        absl::StrCat("is ", node.text, ", which belongs to fsdp_version 1; ",
                     is_mesh ? "write true or false, and the number of copies "
                               "in parallelism_config"
                             : "write true or false, or let fsdp-config "
                               "to-fsdp2 do so"));
    // The value that to-fsdp2 writes.
    config.sharding.reshard_after_forward = Setting<ReshardSetting>(
        ReshardSetting(strategy->reshard_after_forward), node.place);
    return;
  }
  Setting<bool> value;
  if (!section.Read(key, value)) return;
  config.sharding.reshard_after_forward =
      Setting<ReshardSetting>(ReshardSetting(*value), node.place);
}

// Returns null if there is none, or after a problem.
const ShardingStrategy* ReadStrategyName(const std::string& key,
                                         Section& section) {
  const Node* node = section.Find(key);
  if (node == nullptr) return nullptr;
  const ShardingStrategy* strategy =
      node->is_scalar() ? FindShardingStrategy(node->text) : nullptr;
  if (strategy != nullptr) return strategy;
  Choices<bool> names;
  for (const ShardingStrategy& known : AllShardingStrategies()) {
    names.emplace_back(known.name, true);
  }
  Setting<bool> unused;
  section.Read(key, names, unused);
  return nullptr;
}

// accelerate's launcher gives version 1 the strategy FULL_SHARD unless
// sharding_strategy says otherwise.
void SayOnlyNamed(const Node& reshard, absl::string_view strategy,
                  Findings& findings) {
  findings.Problem(
      reshard.place,
      absl::StrCat(
          "is ", reshard.text,
          ", but fsdp_version 1 shards fully unless "
          "sharding_strategy says otherwise; write sharding_strategy: ",
          strategy, ", or fsdp_version: 2"));
}

// Version 1 has two keys for one thing: sharding_strategy, and
// reshard_after_forward with a strategy's name or with a bool, which a strategy
// overrides.
void ReadStrategy(const std::string& reshard_key, Section& section,
                  TrainConfig& config) {
  const std::string named_key = OptionKey("sharding_strategy", section);
  const Node* named = section.Find(named_key);
  const Node* reshard = section.Find(reshard_key);
  const bool reshard_is_bool = reshard != nullptr &&
                               FindShardingStrategy(reshard->text) == nullptr &&
                               AsBool(*reshard).has_value();
  Findings& findings = section.findings();
  const ShardingStrategy* first = ReadStrategyName(named_key, section);
  const ShardingStrategy* second =
      reshard_is_bool ? nullptr : ReadStrategyName(reshard_key, section);
  if (first != nullptr && second != nullptr && first != second) {
    findings.Problem(
        reshard->place,
        absl::StrCat("is ", second->name, ", but ", named->place.key, " is ",
                     first->name, "; keep one of the two"));
    return;
  }
  if (first != nullptr) {
    ApplyShardingStrategy(*first, named->place, config, findings);
  } else if (second != nullptr) {
    ApplyShardingStrategy(*second, reshard->place, config, findings);
    if (second->is_replicated) SayOnlyNamed(*reshard, "NO_SHARD", findings);
  } else if (reshard_is_bool && named == nullptr) {
    if (!*AsBool(*reshard)) SayOnlyNamed(*reshard, "SHARD_GRAD_OP", findings);
    config.sharding.reshard_after_forward = Setting<ReshardSetting>(
        ReshardSetting(*AsBool(*reshard)), reshard->place);
  }
}

void ReadResharding(Section& section, TrainConfig& config) {
  const std::string reshard = OptionKey("reshard_after_forward", section);
  if (*config.sharding.fsdp_version == 1) {
    ReadStrategy(reshard, section, config);
    return;
  }
  section.Ignore(OptionKey("sharding_strategy", section),
                 "fsdp_version 2 has reshard_after_forward instead");
  const Node* node = section.Find(reshard);
  if (node != nullptr) ReadReshard(reshard, *node, section, config);
}

// In accelerate 0 means that no limit was given, and therefore no groups.
void ReadLeastSize(const Setting<int64_t>& least, Findings& findings,
                   ShardingConfig& sharding) {
  if (*least > 0) {
    sharding.min_num_params = least;
  } else if (*sharding.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap) {
    sharding.auto_wrap_policy = Setting<AutoWrapPolicy>(
        AutoWrapPolicy::kNoWrap, SettingPlace(least, ""));
    findings.Changed(SettingPlace(least, ""),
                     "is read as auto_wrap_policy: NO_WRAP");
  }
}

void ReadWrapping(Section& section, TrainConfig& config) {
  ShardingConfig& sharding = config.sharding;
  section.Read(
      OptionKey("auto_wrap_policy", section),
      Choices<AutoWrapPolicy>{
          {"TRANSFORMER_BASED_WRAP", AutoWrapPolicy::kTransformerBasedWrap},
          {"SIZE_BASED_WRAP", AutoWrapPolicy::kSizeBasedWrap},
          {"NO_WRAP", AutoWrapPolicy::kNoWrap}},
      sharding.auto_wrap_policy);
  section.Read(OptionKey("transformer_layer_cls_to_wrap", section),
               sharding.transformer_layer_cls_to_wrap);
  Setting<int64_t> least;
  if (section.Read(OptionKey("min_num_params", section), IntegerRange{},
                   least)) {
    ReadLeastSize(least, section.findings(), sharding);
  }
  section.Read(OptionKey("ignored_modules", section), sharding.ignored_modules);
}

void ReadStateDictType(Section& section, TrainConfig& config) {
  const std::string key = OptionKey("state_dict_type", section);
  const Node* node = section.Find(key);
  if (node == nullptr) return;
  // torch's enum has numbers as well as names.
  if (absl::EqualsIgnoreCase(node->text, "LOCAL_STATE_DICT") ||
      node->text == "2") {
    section.findings().Problem(
        node->place,
        "is LOCAL_STATE_DICT, flat parameters of FSDP1 that nothing else can "
        "load; write SHARDED_STATE_DICT or FULL_STATE_DICT");
    return;
  }
  Setting<StateDictType>& type = config.checkpoint.state_dict_type;
  if (node->text == "1") {
    type = Setting<StateDictType>(StateDictType::kFullStateDict, node->place);
  } else if (node->text == "3") {
    type =
        Setting<StateDictType>(StateDictType::kShardedStateDict, node->place);
  } else {
    section.Read(key,
                 Choices<StateDictType>{
                     {"SHARDED_STATE_DICT", StateDictType::kShardedStateDict},
                     {"FULL_STATE_DICT", StateDictType::kFullStateDict}},
                 type);
  }
}

void ReadActivations(Section& section, TrainConfig& config) {
  Setting<bool> checkpointing;
  const std::string key = OptionKey("activation_checkpointing", section);
  if (section.Read(key, checkpointing)) {
    config.sharding.activation_checkpointing = Setting<int64_t>(
        *checkpointing ? 1 : 0, SettingPlace(checkpointing, key));
  }
}

}  // namespace

std::string KeyWithPrefix(absl::string_view prefix, absl::string_view option,
                          Section& section) {
  const std::string prefixed = absl::StrCat(prefix, option);
  section.Find({prefixed, option});
  const bool has_plain = section.node().kind == Node::Kind::kMap &&
                         section.node().Find(prefixed) == nullptr &&
                         section.node().Find(option) != nullptr;
  return has_plain ? std::string(option) : prefixed;
}

std::string OptionKey(absl::string_view option, Section& section) {
  return KeyWithPrefix(kPrefix, option, section);
}

void RefuseTrue(absl::string_view key, absl::string_view reason,
                Section& section) {
  Setting<bool> value;
  if (section.Read(key, value) && *value) {
    section.findings().Problem(SettingPlace(value, key),
                               absl::StrCat("is true, but ", reason));
  }
}

void ReadFsdpOptions(Section& section, TrainConfig& config) {
  ReadVersion(section, config);
  ReadResharding(section, config);
  ReadWrapping(section, config);
  ReadStateDictType(section, config);
  ReadActivations(section, config);
  section.Read(OptionKey("cpu_ram_efficient_loading", section),
               config.checkpoint.cpu_ram_efficient_loading);
  ReadRemoved(kPrefix, section);
}

void SetMixedPrecision(dcp::DType dtype, const SourceLocation& place,
                       TrainConfig& config) {
  config.precision.param_dtype =
      Setting<std::optional<dcp::DType>>(dtype, place);
  config.precision.reduce_dtype =
      Setting<std::optional<dcp::DType>>(dtype, place);
}

void ReadMixedPrecision(absl::string_view key, Section& section,
                        TrainConfig& config) {
  const Node* node = section.Find(key);
  if (node == nullptr) return;
  const std::string text = absl::AsciiStrToLower(node->text);
  // YAML reads an unquoted no as false.
  if (text == "bf16") {
    SetMixedPrecision(dcp::DType::kBFloat16, node->place, config);
  } else if (text == "fp16") {
    SetMixedPrecision(dcp::DType::kFloat16, node->place, config);
  } else if (text == "no" || text == "fp32" || text == "false") {
    config.precision.param_dtype =
        Setting<std::optional<dcp::DType>>(std::nullopt, node->place);
    config.precision.reduce_dtype =
        Setting<std::optional<dcp::DType>>(std::nullopt, node->place);
  } else if (text == "fp8") {
    section.findings().Problem(
        node->place, absl::StrCat("is fp8, but ", WithoutFloat8("write bf16")));
  } else {
    Setting<bool> unused;
    section.Read(key,
                 Choices<bool>{{"no", true}, {"bf16", true}, {"fp16", true}},
                 unused);
  }
}

}  // namespace fsdp::config
