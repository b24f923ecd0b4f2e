// SPDX-License-Identifier: Apache-2.0
// Reading by tables: a dialect lists the maps in a file, each map's keys, and
// where each value goes. Code next to the table handles keys that depend on
// each other. For readers of dialects with maps that are a program's
// dataclasses. Any thread.
//
//   constexpr KeyRow kRecipe[] = {
//       {"batch_size",
//        Into<&TrainConfig::loop, &LoopConfig::local_batch_size>},
//       {"compile", IgnoreOn, "modules run as they are"},
//   };
//   constexpr KeyMap kMaps[] = {{"", kRecipe, "they are for its data"}};
//   ReadKeyMaps(root, kMaps, config, findings);
#ifndef CONFIG_DIALECTS_FIELDS_KEY_TABLE_H_
#define CONFIG_DIALECTS_FIELDS_KEY_TABLE_H_

#include <cstdint>
#include <optional>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "config/dialects/fields/keys.h"
#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/document/section.h"
#include "config/model/train_config.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::config {

struct KeyRow;
// Reads the row's key from a map into the config. The section knows the key
// from then on.
using ReadKey = void (*)(Section& section, const KeyRow& row,
                         TrainConfig& config);

struct KeyRow {
  absl::string_view key;
  ReadKey read;
  absl::string_view text = "";  // the reason that Ignore and Refuse give
};

struct KeyMap {
  absl::string_view path;  // from the root, "optimizer" or "a.b"; empty: root
  absl::Span<const KeyRow> rows;
  // Why other keys have no effect; empty: each is a problem.
  absl::string_view others = "";
};

// Reads the maps in order, and the keys of each in order: if two keys set one
// setting, the later one counts. An absent map reads as an empty one.
void ReadKeyMaps(const Node& root, absl::Span<const KeyMap> maps,
                 TrainConfig& config, Findings& findings);

// The node at a path of keys, "a.b"; null if it is absent, or null in the file.
const Node* NodeAt(const Node& root, absl::string_view path);

// The tree with null in place of None and none. Some programs read these words
// as null although their syntax does not.
Node WithNullWords(const Node& root);

// The defaults of torch's AdamW, a constant rate, and no gradient clipping.
LoopConfig TorchAdamW();

// --- The row functions.

// A known key without a finding.
void Pass(Section& section, const KeyRow& row, TrainConfig& config);
// An ignored finding if the key is present and not empty; IgnoreOn: if it is a
// switch that is on, or a map.
void Ignore(Section& section, const KeyRow& row, TrainConfig& config);
void IgnoreOn(Section& section, const KeyRow& row, TrainConfig& config);
// A problem if the key asks for something: it is neither empty, off, 0 nor 1.
void Refuse(Section& section, const KeyRow& row, TrainConfig& config);

// An optimizer's class; see ReadOptimizerClass.
void IntoOptimizer(Section& section, const KeyRow& row, TrainConfig& config);
// "betas" alone.
void IntoBetas(Section& section, const KeyRow& row, TrainConfig& config);
// A switch, for every layer.
void IntoRecompute(Section& section, const KeyRow& row, TrainConfig& config);
// A switch for reshard_after_forward. The second: true frees all but the
// root's.
void IntoReshard(Section& section, const KeyRow& row, TrainConfig& config);
void IntoLayerReshard(Section& section, const KeyRow& row, TrainConfig& config);
// A learning rate at which a schedule ends; the rate is read before.
void IntoMinimumRate(Section& section, const KeyRow& row, TrainConfig& config);

// A degree; `least` is 1, or -1 for the rest of the ranks.
template <auto degree, int64_t least = 1>
void IntoMesh(Section& section, const KeyRow& row, TrainConfig& config) {
  ReadDegree(section, row.key, least, config.mesh.*degree);
}

// Any other setting: a switch, a number of at least `least`, a word, a dtype.
template <auto part, auto field, int64_t least = 0>
void Into(Section& section, const KeyRow& row, TrainConfig& config) {
  auto& setting = config.*part.*field;
  using Value = std::remove_cvref_t<decltype(*setting)>;
  if constexpr (std::is_same_v<Value, int64_t> ||
                std::is_same_v<Value, std::optional<int64_t>>) {
    section.Read(row.key, IntegerRange{.least = least}, setting);
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    section.Read(row.key, RealRange{.least = least}, setting);
  } else if constexpr (std::is_same_v<Value, std::optional<dcp::DType>>) {
    Setting<dcp::DType> dtype;
    if (section.Read(row.key, dtype)) setting = Some(*dtype, *dtype.place());
  } else {
    section.Read(row.key, setting);
  }
}

template <auto field, int64_t least = 0>
inline constexpr ReadKey kIntoLoop = Into<&TrainConfig::loop, field, least>;
template <auto field>
inline constexpr ReadKey kIntoPrecision = Into<&TrainConfig::precision, field>;
template <auto field>
inline constexpr ReadKey kIntoSharding = Into<&TrainConfig::sharding, field>;
template <auto field, int64_t least = 0>
inline constexpr ReadKey kIntoCheckpoint =
    Into<&TrainConfig::checkpoint, field, least>;

// A number in a schedule.
template <auto field>
void IntoSchedule(Section& section, const KeyRow& row, TrainConfig& config) {
  LrSchedule schedule = config.loop.lr_schedule->value_or(LrSchedule());
  using Value = std::remove_cvref_t<decltype(schedule.*field)>;
  if constexpr (std::is_same_v<Value, double>) {
    Setting<std::optional<double>> number;
    if (!section.Read(row.key, RealRange{}, number)) return;
    schedule.*field = **number;
  } else {
    Setting<int64_t> number;
    if (!section.Read(row.key, IntegerRange{}, number)) return;
    schedule.*field = *number;
  }
  config.loop.lr_schedule = Some(schedule, section.node().place);
}

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_FIELDS_KEY_TABLE_H_
