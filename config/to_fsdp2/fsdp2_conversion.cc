// SPDX-License-Identifier: Apache-2.0
// Edits the options one by one, and writes the defaults that differ.
//
// Tested by tests/config/to_fsdp2/to_fsdp2_test.cc.
#include "config/to_fsdp2/fsdp2_conversion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "config/dialects/fields/fsdp1.h"
#include "config/to_fsdp2/map_edit.h"
#include "config/to_fsdp2/map_text.h"

namespace fsdp::config {
namespace {

// Options in Composer's FSDPConfig that FSDP2Config does not have, in addition
// to those in fsdp1.h, and the values that can be dropped without a loss.
struct ComposerOption {
  absl::string_view name;
  std::vector<absl::string_view> unset;  // empty: any value
};
const std::vector<ComposerOption>& ComposerOptions() {
  static const auto& options = *new std::vector<ComposerOption>{
      {"cpu_offload", {"false", "null", "none", "no", ""}},
      {"data_parallel_replicate_degree", {"-1", "1", "null", "none", ""}},
      {"data_parallel_shard_degree", {"-1", "null", "none", ""}},
      {"load_planner", {}},
      {"save_planner", {}},
      {"sharded_ckpt_prefix_dir", {}},
  };
  return options;
}

class Conversion {
 public:
  Conversion(const Fsdp1Text& file, OptionsLayout found, const ReadConfig& read,
             Findings& findings)
      : name_(file.name),
        text_(file.text),
        layout_(file.as_yaml),
        read_(read),
        findings_(findings),
        path_(std::move(found.path)),
        map_begin_(found.begin),
        options_(std::move(found.options)),
        parent_(std::move(found.parent)),
        parent_entry_(found.parent_entry) {}

  // Returns nothing after a problem.
  std::optional<std::string> Run() {
    if (options_.has_value()) ConvertOptions();
    if (LosesComments()) return std::nullopt;
    AddDefaults();
    AddDegrees();
    return Apply();
  }

  // For a file that already has version 2.
  std::optional<std::string> Mend() {
    is_version_2_ = true;
    ConvertOptions();
    if (LosesComments()) return std::nullopt;
    return Apply();
  }

 private:
  bool is_composer() const { return read_.dialect == ConfigDialect::kComposer; }
  bool is_accelerate() const {
    return read_.dialect == ConfigDialect::kAccelerate ||
           read_.dialect == ConfigDialect::kAxolotl;
  }

  std::string Bool(bool value) const {
    if (absl::EndsWithIgnoreCase(name_, ".py")) return value ? "True" : "False";
    return value ? "true" : "false";
  }
  bool reshard() const {
    const bool* value =
        std::get_if<bool>(&*read_.config.sharding.reshard_after_forward);
    return value == nullptr || *value;
  }
  absl::string_view Base(absl::string_view name) const {
    return is_composer() ? name : absl::StripPrefix(name, "fsdp_");
  }
  absl::string_view Prefix(absl::string_view name) const {
    return name.substr(0, name.size() - Base(name).size());
  }
  absl::string_view EntryValue(const EntryText& entry) const {
    return WithoutQuotes(entry.value.In(layout_));
  }

  SourceLocation PlaceAt(size_t offset, absl::string_view key) const {
    const absl::string_view before = text_.substr(0, offset);
    const size_t line = before.rfind('\n');
    std::vector<absl::string_view> keys = path_;
    if (!key.empty()) keys.push_back(key);
    return {.file = std::string(name_),
            .line = static_cast<int>(
                1 + std::count(before.begin(), before.end(), '\n')),
            .column = static_cast<int>(
                line == absl::string_view::npos ? offset + 1 : offset - line),
            .key = absl::StrJoin(keys, ".")};
  }
  SourceLocation EntryPlace(const EntryText& entry) const {
    return PlaceAt(entry.value.begin, entry.name);
  }
  SourceLocation MapPlace() const { return PlaceAt(map_begin_, ""); }
  void Problem(std::string text) {
    findings_.Problem(MapPlace(), std::move(text));
  }

  bool LosesComments() {
    if (!was_removed_ || !options_->map().in_braces ||
        !options_->map().has_comments) {
      return false;
    }
    Problem(
        "has comments between its braces, which would be lost; write it "
        "without braces, or without comments");
    return true;
  }

  void Drop(size_t i, absl::string_view why) {
    const EntryText& entry = options_->map().entries[i];
    options_->Remove(i);
    was_removed_ = true;
    findings_.Ignored(EntryPlace(entry), absl::StrCat("is dropped: ", why));
  }

  void ConvertOptions() {
    bool has_reshard = false;
    const std::vector<EntryText>& entries = options_->map().entries;
    for (const EntryText& entry : entries) {
      has_reshard = has_reshard || Base(entry.name) == "reshard_after_forward";
    }
    for (size_t i = 0; i < entries.size(); ++i) ConvertOption(i, has_reshard);
  }

  void ConvertOption(size_t i, bool has_reshard) {
    const EntryText& entry = options_->map().entries[i];
    const absl::string_view base = Base(entry.name);
    if (base == "version" && !is_composer()) {
      if (!is_version_2_) options_->SetValue(i, "2");
      has_version_ = true;
    } else if (base == "sharding_strategy") {
      ConvertStrategy(i, has_reshard);
    } else if (base == "reshard_after_forward") {
      ConvertReshard(i);
    } else if (const auto why = WhyRemoved(base); why.has_value()) {
      Drop(i, *why);
    } else if (base == "state_dict_type") {
      state_dict_type_ = i;
    } else if (is_composer()) {
      ConvertComposer(i);
    }
  }

  void ConvertStrategy(size_t i, bool has_reshard) {
    const EntryText& entry = options_->map().entries[i];
    if (has_reshard || is_version_2_) {
      Drop(i, has_reshard ? "reshard_after_forward replaces it"
                          : "version 2 has reshard_after_forward instead, "
                            "which is true unless it is written");
      return;
    }
    const std::string name =
        absl::StrCat(Prefix(entry.name), "reshard_after_forward");
    options_->Rename(i, name);
    options_->SetValue(i, Bool(reshard()));
    has_reshard_ = true;
    findings_.Changed(EntryPlace(entry),
                      absl::StrCat("becomes ", name, ": ", Bool(reshard())));
  }

  void ConvertReshard(size_t i) {
    const EntryText& entry = options_->map().entries[i];
    has_reshard_ = true;
    const ShardingStrategy* strategy = FindShardingStrategy(EntryValue(entry));
    if (strategy == nullptr) return;
    // true and false cannot express copies.
    if (is_version_2_ && (strategy->is_hybrid || strategy->is_replicated)) {
      return;
    }
    options_->SetValue(i, Bool(reshard()));
    findings_.Changed(EntryPlace(entry),
                      absl::StrCat("becomes ", Bool(reshard())));
  }

  void ConvertComposer(size_t i) {
    const EntryText& entry = options_->map().entries[i];
    for (const ComposerOption& option : ComposerOptions()) {
      if (option.name != entry.name) continue;
      const absl::string_view value = EntryValue(entry);
      const bool is_unset =
          option.unset.empty() ||
          std::any_of(option.unset.begin(), option.unset.end(),
                      [&](absl::string_view unset) {
                        return absl::EqualsIgnoreCase(value, unset);
                      });
      if (is_unset) {
        Drop(i, "FSDP2Config has no such option");
      } else {
        findings_.Changed(EntryPlace(entry),
                          "stays, although Composer's FSDP2Config has no such "
                          "option, because it has an effect here");
      }
    }
  }

  // Appends to the options, or begins a new map for them.
  void Add(absl::string_view name, absl::string_view value, bool is_word) {
    const MapText& map =
        options_.has_value() ? options_->map() : parent_->map();
    absl::string_view quote;
    if (map.in_braces) {
      const absl::string_view key = map.entries[0].key.In(layout_);
      if (WithoutQuotes(key).size() < key.size()) {
        quote = key.substr(0, 1);
      }
    }
    const std::string text =
        is_word ? absl::StrCat(quote, value, quote) : std::string(value);
    if (options_.has_value()) {
      options_->Append(name, text);
    } else {
      begun_.push_back(absl::StrCat(quote, name, quote, ": ", text));
    }
  }

  void AddDefaults() {
    absl::string_view prefix = is_composer() ? "" : "fsdp_";
    if (!is_composer() && options_.has_value()) {
      prefix = Prefix(options_->map().entries[0].name);
    }
    if (!is_composer() && !has_version_) {
      Add(absl::StrCat(prefix, "version"), "2", false);
    }
    if (is_composer()) {
      // The name stays: Composer's Trainer takes no other one from a map. This
      // key tells a reader that the map is for FSDP2.
      if (!has_reshard_) Add("reshard_after_forward", Bool(reshard()), false);
      findings_.Changed(MapPlace(),
                        "is for FSDP2 if Composer finds FSDP_VERSION=2 in its "
                        "environment; set that as well");
    }
    // transformers has the same default for both versions.
    if (is_composer() || is_accelerate()) AddStateDictType(prefix);
    if (begun_.empty()) return;
    const std::string map = absl::StrCat("{", absl::StrJoin(begun_, ", "), "}");
    if (parent_entry_.has_value()) {
      parent_->SetValue(*parent_entry_, map);
    } else {
      parent_->Append(path_.back(), map);
    }
  }

  void AddStateDictType(absl::string_view prefix) {
    const bool is_full = *read_.config.checkpoint.state_dict_type ==
                         StateDictType::kFullStateDict;
    const absl::string_view value =
        is_composer() ? (is_full ? "full" : "sharded") : "FULL_STATE_DICT";
    if (!is_full) return;
    if (state_dict_type_.has_value()) {
      const EntryText& entry = options_->map().entries[*state_dict_type_];
      if (IsEmptyText(entry.value.In(layout_))) {
        options_->SetValue(*state_dict_type_, value);
      }
      return;
    }
    const std::string name = absl::StrCat(prefix, "state_dict_type");
    Add(name, value, true);
    findings_.Changed(MapPlace(),
                      absl::StrCat("gets ", name, ": ", value,
                                   ", which is not the default of FSDP2"));
  }

  // Writes a hybrid strategy's degrees, if num_machines determined them.
  void AddDegrees() {
    const MeshConfig& mesh = read_.config.mesh;
    const std::optional<SourceLocation>& place =
        mesh.data_parallel_replicate_degree.place();
    if (!is_accelerate() || !place.has_value() ||
        place->key != "num_machines") {
      return;
    }
    const std::pair<absl::string_view, int64_t> degrees[] = {
        {"parallelism_config_dp_replicate_size",
         *mesh.data_parallel_replicate_degree},
        {"parallelism_config_dp_shard_size", *mesh.data_parallel_shard_degree}};
    findings_.Changed(
        *place,
        absl::StrCat("becomes ", degrees[0].first, ": ", degrees[0].second,
                     " and ", degrees[1].first, ": ", degrees[1].second,
                     " for the hybrid sharding strategy"));
    const std::vector<absl::string_view> path = {"parallelism_config"};
    std::optional<MapText> map = FindMapText(layout_, path);
    if (map.has_value() && !map->entries.empty()) {
      parallelism_.emplace(layout_, *std::move(map));
      for (const auto& [name, value] : degrees) {
        parallelism_->Append(name, absl::StrCat(value));
      }
      return;
    }
    const absl::string_view quote = parent_->map().in_braces ? "\"" : "";
    const std::string text = absl::StrCat(
        "{", quote, degrees[0].first, quote, ": ", degrees[0].second, ", ",
        quote, degrees[1].first, quote, ": ", degrees[1].second, "}");
    const std::vector<EntryText>& around = parent_->map().entries;
    for (size_t i = 0; i < around.size(); ++i) {
      if (around[i].name != "parallelism_config") continue;
      parent_->SetValue(i, text);
      return;
    }
    parent_->Append("parallelism_config", text);
  }

  std::string Apply() const {
    std::vector<TextEdit> edits;
    for (const std::optional<MapEdit>* map :
         {&options_, &parallelism_, &parent_}) {
      if (!map->has_value()) continue;
      for (TextEdit& edit : (*map)->Edits()) {
        edits.push_back(std::move(edit));
      }
    }
    std::string result = ApplyEdits(text_, std::move(edits));
    if (!absl::EndsWith(text_, "\n")) {
      while (absl::EndsWith(result, "\n") || absl::EndsWith(result, "\r")) {
        result.pop_back();
      }
    }
    return result;
  }

  absl::string_view name_;
  absl::string_view text_;
  absl::string_view layout_;
  const ReadConfig& read_;
  Findings& findings_;

  std::vector<absl::string_view> path_;  // the path to the options
  size_t map_begin_ = 0;
  std::optional<MapEdit> options_;      // unset: there are none
  std::optional<MapEdit> parent_;       // the map that has them as an entry
  std::optional<size_t> parent_entry_;  // the options' entry
  std::optional<MapEdit> parallelism_;
  std::vector<std::string> begun_;  // options for a new map
  bool has_version_ = false;
  bool has_reshard_ = false;
  bool was_removed_ = false;
  bool is_version_2_ = false;
  std::optional<size_t> state_dict_type_;
};

}  // namespace

std::optional<std::string> MendFsdp2(const Fsdp1Text& file, OptionsLayout found,
                                     const ReadConfig& read,
                                     Findings& findings) {
  return Conversion(file, std::move(found), read, findings).Mend();
}

std::optional<std::string> ConvertToFsdp2(const Fsdp1Text& file,
                                          OptionsLayout found,
                                          const ReadConfig& read,
                                          Findings& findings) {
  return Conversion(file, std::move(found), read, findings).Run();
}

}  // namespace fsdp::config
