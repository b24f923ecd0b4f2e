// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/map_options.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/checkpoint/mapped/mapped_entries.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"
#include "tools/dcp_convert/options/lens_options.h"
#include "tools/dcp_convert/options/map_detection.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {
namespace {

constexpr absl::string_view kBetweenSides = "-to-";
constexpr absl::string_view kStatesSuffix = ".states";
constexpr absl::string_view kAuto = "auto";

// Whether the value of --map is a family and two sides.
bool NamesSides(absl::string_view map) {
  return absl::StrContains(map, kBetweenSides);
}

absl::Status CheckAlone(const CommandLine& line) {
  const bool is_mapped = IsMapped(line);
  if (!line.map.name.empty() && !line.map.file.empty()) {
    return absl::InvalidArgumentError(
        "--map and --map-file exclude each other: one names a family that is "
        "known, the other a rule file");
  }
  for (const auto& [name, is_there] : {
           std::pair("--from-side", !line.map.from_side.empty()),
           std::pair("--to-side", !line.map.to_side.empty()),
           std::pair("--config", !line.map.config.empty()),
           std::pair("--set", !line.map.settings.empty()),
           std::pair("--at", !line.map.prefixes.empty()),
           std::pair("--check-padding", line.write.spec.check_padding),
           std::pair("--allow-missing", !line.map.allow_missing.empty()),
           std::pair("--force-family", line.map.force_family),
           std::pair("--unmatched",
                     line.map.unmatched != MapOptions::Unmatched::kError),
       }) {
    if (is_there && !is_mapped) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " requires --map or --map-file"));
    }
  }
  if (NamesSides(line.map.name) &&
      (!line.map.from_side.empty() || !line.map.to_side.empty())) {
    return absl::InvalidArgumentError(
        "--map names both sides; --from-side and --to-side belong to "
        "--map auto, --map FAMILY and --map-file");
  }
  return absl::OkStatus();
}

// The mappings that the line may mean.
absl::StatusOr<std::vector<Mapping>> CandidateMappings(
    FileSystem& fs, const CommandLine& line, const std::string& config) {
  std::vector<Mapping> mappings;
  if (!line.map.file.empty()) {
    DCP_ASSIGN_OR_RETURN(Mapping mapping, ReadMapping(fs, line.map.file));
    mappings.push_back(std::move(mapping));
    return mappings;
  }
  std::vector<std::string> families = {line.map.name};
  if (line.map.name == kAuto) {
    DCP_ASSIGN_OR_RETURN(families, FamiliesFor(config));
  }
  for (const std::string& family : families) {
    const absl::StatusOr<Mapping> mapping = BuiltinMapping(family);
    if (!mapping.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--map '", line.map.name,
          "' is not auto, FAMILY-SIDE-to-SIDE, such as llama-hf-to-torchtitan, "
          "or FAMILY with --to-side; the families are ",
          absl::StrJoin(BuiltinMappings(), ", ")));
    }
    mappings.push_back(*mapping);
  }
  return mappings;
}

// Sets both sides. The names in the source may tell one.
absl::StatusOr<MapSpec> ChosenMapSpec(FileSystem& fs, const CommandLine& line,
                                      const std::string& config,
                                      const std::stop_token& stop) {
  if (NamesSides(line.map.name)) {
    DCP_ASSIGN_OR_RETURN(const MapName name, ParseMapName(line.map.name));
    DCP_ASSIGN_OR_RETURN(Mapping mapping, BuiltinMapping(name.family));
    MapSpec spec{.mapping = std::move(mapping), .options = {}};
    spec.options.from = name.from;
    spec.options.to = name.to;
    return spec;
  }
  DCP_ASSIGN_OR_RETURN(std::vector<Mapping> mappings,
                       CandidateMappings(fs, line, config));
  if (line.map.to_side.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        line.map.name.empty() ? "--map-file" : "--map ", line.map.name,
        " requires --to-side; ", mappings[0].name(), " has the sides ",
        absl::StrJoin(mappings[0].sides(), ", ")));
  }
  std::string from = line.map.from_side;
  if (from.empty() || mappings.size() > 1) {
    if (!line.server.address.empty()) {
      return absl::InvalidArgumentError(
          "the names of a server's files are not seen here: say --from-side, "
          "or --map FAMILY-SIDE-to-SIDE");
    }
    DCP_ASSIGN_OR_RETURN(const StoredShapes shapes,
                         ReadShapes(fs, line.paths[0], line, stop));
    DCP_ASSIGN_OR_RETURN(Spelling spelling,
                         FindSpelling(mappings, shapes.tensors, config, line));
    mappings = {std::move(spelling.mapping)};
    from = std::move(spelling.side);
  }
  MapSpec spec{.mapping = std::move(mappings[0]), .options = {}};
  spec.options.from = std::move(from);
  spec.options.to = line.map.to_side;
  return spec;
}

// The parts of the state that the user asks for.
absl::StatusOr<MapOptions::Parts> RequestedParts(const CommandLine& line) {
  const std::vector<StatePart>& parts = line.selection.parts;
  if (parts.empty()) return MapOptions::Parts::kAll;
  if (parts == std::vector{StatePart::kModel}) return MapOptions::Parts::kModel;
  if (parts == std::vector{StatePart::kOptimizer}) {
    return MapOptions::Parts::kStates;
  }
  return absl::InvalidArgumentError(
      "with a mapping, --part is model or optimizer, or is left out");
}

absl::Status SetPrefixes(const CommandLine& line, MapSpec& spec) {
  for (const auto& [place, prefix] : line.map.prefixes) {
    absl::string_view side = place;
    const bool is_of_states = absl::ConsumeSuffix(&side, kStatesSuffix);
    if (side == spec.options.from) {
      (is_of_states ? spec.states_from : spec.model_from) = prefix;
    } else if (side == spec.options.to) {
      (is_of_states ? spec.states_to : spec.model_to) = prefix;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--at names the side ", side, ", but this maps ",
                       spec.options.from, " to ", spec.options.to));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddMapSetting(absl::string_view value, CommandLine& line) {
  const size_t equals = value.find('=');
  int64_t number = 0;
  if (equals == absl::string_view::npos || equals == 0 ||
      !absl::SimpleAtoi(value.substr(equals + 1), &number)) {
    return IsNot(value, "NAME=N with a whole number N");
  }
  line.map.settings[std::string(value.substr(0, equals))] = number;
  return absl::OkStatus();
}

absl::Status AddMapPrefix(absl::string_view value, CommandLine& line) {
  const size_t equals = value.find('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return IsNot(
        value, "SIDE=PREFIX or SIDE.states=PREFIX, such as torchtitan=model.");
  }
  line.map.prefixes.emplace_back(value.substr(0, equals),
                                 value.substr(equals + 1));
  return absl::OkStatus();
}

absl::Status AddAllowMissing(absl::string_view value, CommandLine& line) {
  line.map.allow_missing.emplace_back(value);
  return absl::OkStatus();
}

absl::Status SetUnmatched(absl::string_view value, CommandLine& line) {
  if (value == "error") {
    line.map.unmatched = MapOptions::Unmatched::kError;
  } else if (value == "keep") {
    line.map.unmatched = MapOptions::Unmatched::kKeep;
  } else if (value == "drop") {
    line.map.unmatched = MapOptions::Unmatched::kDrop;
  } else {
    return IsNot(value, "error, keep or drop");
  }
  return absl::OkStatus();
}

// Families have dashes in their names, sides have not.
absl::StatusOr<MapName> ParseMapName(absl::string_view text) {
  const size_t middle = text.rfind(kBetweenSides);
  const size_t dash = text.substr(0, middle).rfind('-');
  if (middle == absl::string_view::npos || dash == absl::string_view::npos ||
      middle + kBetweenSides.size() == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is not FAMILY-SIDE-to-SIDE, such as llama-hf-to-torchtitan"));
  }
  return MapName{.family = std::string(text.substr(0, dash)),
                 .from = std::string(text.substr(dash + 1, middle - dash - 1)),
                 .to = std::string(text.substr(middle + kBetweenSides.size()))};
}

absl::StatusOr<Mapping> ReadMapping(FileSystem& fs, const std::string& path) {
  DCP_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(fs, path, kMaxMappingBytes, /*follow_symlinks=*/true));
  return ParseMapping(text, path);
}

absl::StatusOr<std::string> ReadModelConfig(FileSystem& fs,
                                            const CommandLine& line,
                                            const std::string& source) {
  if (!line.map.config.empty()) {
    return ReadFile(fs, line.map.config, kMaxModelConfigBytes,
                    /*follow_symlinks=*/true);
  }
  if (source.empty()) return std::string();
  return FindModelConfig(fs, source);
}

absl::Status LoadMap(FileSystem& fs, CommandLine& line,
                     const std::stop_token& stop) {
  if (line.verb == Verb::kMaps) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(CheckAlone(line));
  DCP_RETURN_IF_ERROR(CheckLenses(line));
  if (!IsMapped(line) && !HasLens(line)) return absl::OkStatus();
  if (!line.server.address.empty() && HasLens(line)) {
    return absl::UnimplementedError(
        "--decode, --encode, --adapter and --average do not work on a server; "
        "leave out --server, or TESSERA_SERVER");
  }
  if (!IsMapped(line)) {
    DCP_ASSIGN_OR_RETURN(MapSpec spec, SpecWithoutRules(line));
    DCP_RETURN_IF_ERROR(AddLenses(fs, line, spec));
    line.map.spec = std::make_shared<const MapSpec>(std::move(spec));
    return absl::OkStatus();
  }
  // Without --config, a server looks for the file next to the source.
  DCP_ASSIGN_OR_RETURN(
      std::string config,
      ReadModelConfig(fs, line,
                      line.server.address.empty() ? line.paths[0] : ""));
  DCP_ASSIGN_OR_RETURN(MapSpec spec, ChosenMapSpec(fs, line, config, stop));
  DCP_RETURN_IF_ERROR(AddLenses(fs, line, spec));
  DCP_RETURN_IF_ERROR(SetPrefixes(line, spec));
  DCP_RETURN_IF_ERROR(CheckSides(spec));
  DCP_ASSIGN_OR_RETURN(spec.options.parts, RequestedParts(line));
  line.selection.parts.clear();
  spec.options.settings = line.map.settings;
  spec.options.unmatched = line.map.unmatched;
  spec.options.allow_missing = line.map.allow_missing;
  spec.options.force_family = line.map.force_family;
  spec.options.config = std::move(config);
  line.map.spec = std::make_shared<const MapSpec>(std::move(spec));
  return absl::OkStatus();
}

}  // namespace dcp::tools
