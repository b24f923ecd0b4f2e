// SPDX-License-Identifier: Apache-2.0
// Reads maps key by key; has the row functions that need more than a field.
//
// Tested by tests/config/dialects/fields/key_table_test.cc.
#include "config/dialects/fields/key_table.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "config/dialects/fields/betas.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

// The key in `map` that leads to the map at `inner`; empty: none does.
absl::string_view KeyTo(absl::string_view map, absl::string_view inner) {
  if (!map.empty() && (!absl::ConsumePrefix(&inner, map) ||
                       !absl::ConsumePrefix(&inner, "."))) {
    return "";
  }
  return inner.substr(0, inner.find('.'));
}

void ReplaceNullWords(Node& node) {
  if (node.kind == Node::Kind::kString &&
      (node.text == "None" || node.text == "none")) {
    node.kind = Node::Kind::kNull;
    node.text.clear();
  }
  for (Node& item : node.items) ReplaceNullWords(item);
  for (auto& [key, value] : node.entries) ReplaceNullWords(value);
}

}  // namespace

void ReadKeyMaps(const Node& root, absl::Span<const KeyMap> maps,
                 TrainConfig& config, Findings& findings) {
  static const Node& empty = *new Node();
  std::vector<Section> sections;
  sections.reserve(maps.size());
  for (const KeyMap& map : maps) {
    const Node* node = NodeAt(root, map.path);
    sections.emplace_back(node == nullptr ? empty : *node, findings);
  }
  for (size_t i = 0; i < maps.size(); ++i) {
    for (const KeyMap& inner : maps) {
      const absl::string_view key = KeyTo(maps[i].path, inner.path);
      if (!key.empty()) sections[i].Find(key);
    }
    for (const KeyRow& row : maps[i].rows) row.read(sections[i], row, config);
  }
  for (size_t i = 0; i < maps.size(); ++i) {
    if (maps[i].others.empty()) {
      sections[i].Finish();
    } else {
      sections[i].FinishLenient(maps[i].others);
    }
  }
}

const Node* NodeAt(const Node& root, absl::string_view path) {
  const Node* node = &root;
  if (path.empty()) return node;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    node = node->Find(key);
    if (node == nullptr) return nullptr;
  }
  return node->kind == Node::Kind::kNull ? nullptr : node;
}

Node WithNullWords(const Node& root) {
  Node copy = root;
  ReplaceNullWords(copy);
  return copy;
}

LoopConfig TorchAdamW() {
  return {.max_norm = std::optional(0.0),
          .lr = std::optional(1e-3),
          .weight_decay = std::optional(1e-2),
          .beta1 = std::optional(0.9),
          .beta2 = std::optional(0.999),
          .eps = std::optional(1e-8),
          .lr_schedule = std::optional(LrSchedule())};
}

void Pass(Section& section, const KeyRow& row, TrainConfig&) {
  section.Find(row.key);
}

void Ignore(Section& section, const KeyRow& row, TrainConfig&) {
  const Node* node = section.Find(row.key);
  if (node == nullptr ||
      (node->text.empty() && node->items.empty() && node->entries.empty())) {
    return;
  }
  section.Ignore(row.key, row.text);
}

void IgnoreOn(Section& section, const KeyRow& row, TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr || AsBool(*node) == false ||
      (node->kind == Node::Kind::kInteger && node->text == "0")) {
    return;
  }
  Ignore(section, row, config);
}

void Refuse(Section& section, const KeyRow& row, TrainConfig&) {
  const Node* node = section.Find(row.key);
  const bool is_one = node != nullptr && node->text == "1";
  section.Refuse(row.key, is_one ? "1" : "false", row.text);
}

void IntoOptimizer(Section& section, const KeyRow& row, TrainConfig& config) {
  ReadOptimizerClass(row.key, section, config.loop);
}

void IntoBetas(Section& section, const KeyRow&, TrainConfig& config) {
  ReadBetas(section, config.loop);
}

void IntoRecompute(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<bool> is_on;
  if (!section.Read(row.key, is_on)) return;
  config.sharding.activation_checkpointing =
      Setting<int64_t>(*is_on ? 1 : 0, *is_on.place());
}

void IntoReshard(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<bool> frees;
  if (!section.Read(row.key, frees)) return;
  config.sharding.reshard_after_forward =
      Setting<ReshardSetting>(ReshardSetting(*frees), *frees.place());
}

void IntoLayerReshard(Section& section, const KeyRow& row,
                      TrainConfig& config) {
  Setting<bool> frees;
  if (!section.Read(row.key, frees)) return;
  config.sharding.reshard_after_forward = Setting<ReshardSetting>(
      *frees ? ReshardSetting() : ReshardSetting(false), *frees.place());
}

void IntoMinimumRate(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<std::optional<double>> least;
  if (!section.Read(row.key, RealRange{}, least)) return;
  const std::optional<double> lr = *config.loop.lr;
  if (!lr.has_value() || **least > *lr) {
    section.findings().Problem(SettingPlace(least, row.key),
                               absl::StrCat("is ", RealText(**least),
                                            ", more than the learning rate"));
    return;
  }
  LrSchedule schedule = config.loop.lr_schedule->value_or(LrSchedule());
  schedule.min_factor = *lr > 0 ? **least / *lr : 0;
  config.loop.lr_schedule = Some(schedule, section.node().place);
}

}  // namespace fsdp::config
