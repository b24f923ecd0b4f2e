// SPDX-License-Identifier: Apache-2.0
// Searches the places where each dialect may have the options.
//
// Tested by tests/config/to_fsdp2/to_fsdp2_test.cc.
#include "config/to_fsdp2/options_layout.h"

#include <utility>

#include "absl/types/span.h"
#include "config/to_fsdp2/map_text.h"

namespace fsdp::config {
namespace {

using Path = std::vector<absl::string_view>;

// The paths at which each dialect may have the options.
std::vector<Path> OptionPaths(ConfigDialect dialect) {
  switch (dialect) {
    case ConfigDialect::kAccelerate:
    case ConfigDialect::kAxolotl:
      return {{"fsdp_config"}};
    case ConfigDialect::kTransformers:
      return {{"fsdp_config"}, {}};
    case ConfigDialect::kComposer:
      return {{"parallelism_config", "fsdp"},
              {"fsdp"},
              {"fsdp_config"},
              {"parameters", "fsdp_config"}};
    default:
      break;
  }
  return {};
}

std::optional<size_t> FindEntryIndex(const MapText& map,
                                     absl::string_view name) {
  for (size_t i = 0; i < map.entries.size(); ++i) {
    if (map.entries[i].name == name) return i;
  }
  return std::nullopt;
}

std::optional<OptionsLayout> WholeText(absl::string_view text) {
  std::optional<MapText> options = FindMapText(text, {});
  if (!options.has_value() || options->entries.empty()) return std::nullopt;
  OptionsLayout layout;
  layout.options.emplace(text, *std::move(options));
  return layout;
}

std::optional<OptionsLayout> At(absl::string_view text, const Path& path) {
  if (path.empty()) return WholeText(text);
  std::optional<MapText> parent =
      FindMapText(text, absl::MakeConstSpan(path).first(path.size() - 1));
  if (!parent.has_value()) return std::nullopt;
  const std::optional<size_t> index = FindEntryIndex(*parent, path.back());
  if (!index.has_value()) return std::nullopt;
  const EntryText entry = parent->entries[*index];
  OptionsLayout layout;
  if (!IsEmptyText(entry.value.In(text))) {
    std::optional<MapText> options = FindMapText(text, path);
    if (!options.has_value() || options->entries.empty()) return std::nullopt;
    layout.options.emplace(text, *std::move(options));
  }
  layout.path = path;
  layout.begin = entry.key.begin;
  layout.parent.emplace(text, *std::move(parent));
  layout.parent_entry = index;
  return layout;
}

// For an accelerate file without fsdp_config, for which version 1's defaults
// hold.
std::optional<OptionsLayout> LayoutWithoutOptions(absl::string_view text) {
  std::optional<MapText> root = FindMapText(text, {});
  if (!root.has_value() || root->entries.empty() ||
      root->Find("fsdp_config") != nullptr) {
    return std::nullopt;
  }
  OptionsLayout layout;
  layout.path = {"fsdp_config"};
  layout.parent.emplace(text, *std::move(root));
  return layout;
}

}  // namespace

bool IsEmptyText(absl::string_view value) {
  return value.empty() || value == "{}" || value == "null" || value == "~" ||
         value == "None";
}

bool HasFsdp1Options(ConfigDialect dialect) {
  return !OptionPaths(dialect).empty();
}

std::optional<OptionsLayout> FindOptions(absl::string_view text,
                                         ConfigDialect dialect) {
  for (const Path& path : OptionPaths(dialect)) {
    std::optional<OptionsLayout> layout = At(text, path);
    if (layout.has_value()) return layout;
  }
  if (dialect == ConfigDialect::kAccelerate) return LayoutWithoutOptions(text);
  return std::nullopt;
}

}  // namespace fsdp::config
