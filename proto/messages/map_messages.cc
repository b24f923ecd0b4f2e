// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/map_messages.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/mapped_entries.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"
#include "proto/error_detail.h"
#include "proto/messages/field_checks.h"
#include "proto/utf8.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using messages::CheckPattern;
using messages::Invalid;

// More than any family and config.json have.
constexpr size_t kMaxMapSettings = 1000;

constexpr int kMaxAllowMissing = 1000;

// Memory for each byte in a rule file or a config.json, and for a large model's
// pieces.
constexpr uint64_t kBytesPerByte = 48;
constexpr uint64_t kPiecesBytes = uint64_t{8} << 20;

constexpr absl::string_view kRulesName = "rules.yaml";

absl::Status CheckText(absl::string_view text, size_t limit,
                       absl::string_view field) {
  if (text.size() <= limit) return absl::OkStatus();
  return Invalid(field, " has ", text.size(), " bytes: at most ", limit,
                 " are allowed");
}

absl::Status CheckRules(const v1::MapSpec& map, absl::string_view field) {
  if (map.builtin().empty() == map.yaml().empty()) {
    return Invalid(field, map.yaml().empty() ? " has neither" : " has both",
                   " builtin ", map.yaml().empty() ? "nor" : "and",
                   " yaml: exactly one of them says which rules are meant");
  }
  DCP_RETURN_IF_ERROR(
      CheckPattern(map.builtin(), absl::StrCat(field, ".builtin")));
  DCP_RETURN_IF_ERROR(
      CheckPattern(map.yaml_name(), absl::StrCat(field, ".yaml_name")));
  return CheckText(map.yaml(), kMaxMappingBytes, absl::StrCat(field, ".yaml"));
}

absl::Status CheckSettings(const v1::MapSpec& map, absl::string_view field) {
  if (map.settings().size() > kMaxMapSettings) {
    return Invalid(field, " has ", map.settings().size(), " entries: at most ",
                   kMaxMapSettings, " are allowed");
  }
  for (const auto& [name, value] : map.settings()) {
    DCP_RETURN_IF_ERROR(CheckText(name, kMaxConfigPathBytes, field));
  }
  return absl::OkStatus();
}

absl::Status CheckAllowMissing(const v1::MapSpec& map,
                               absl::string_view field) {
  if (map.allow_missing().size() > kMaxAllowMissing) {
    return Invalid(field, " has ", map.allow_missing().size(),
                   " entries: at most ", kMaxAllowMissing, " are allowed");
  }
  for (const std::string& glob : map.allow_missing()) {
    DCP_RETURN_IF_ERROR(CheckPattern(glob, field));
  }
  return absl::OkStatus();
}

absl::StatusOr<MapOptions::Parts> ParseParts(absl::string_view part,
                                             absl::string_view field) {
  if (part.empty()) return MapOptions::Parts::kAll;
  if (part == "model") return MapOptions::Parts::kModel;
  if (part == "optimizer") return MapOptions::Parts::kStates;
  return Invalid(field, " is '", messages::Text(part),
                 "': model and optimizer are allowed, or nothing for both");
}

absl::StatusOr<MapOptions::Unmatched> ParseUnmatched(absl::string_view mode,
                                                     absl::string_view field) {
  if (mode.empty() || mode == "error") return MapOptions::Unmatched::kError;
  if (mode == "keep") return MapOptions::Unmatched::kKeep;
  if (mode == "drop") return MapOptions::Unmatched::kDrop;
  return Invalid(field, " is '", messages::Text(mode),
                 "': error, keep and drop are allowed");
}

absl::StatusOr<Mapping> ParseRules(const v1::MapSpec& map,
                                   absl::string_view field) {
  if (!map.builtin().empty()) {
    absl::StatusOr<Mapping> mapping = BuiltinMapping(map.builtin());
    if (mapping.ok()) return mapping;
    return Invalid(absl::StrCat(field, ".builtin"), ": ",
                   mapping.status().message());
  }
  absl::StatusOr<Mapping> mapping = ParseMapping(
      map.yaml(), map.yaml_name().empty() ? kRulesName
                                          : absl::string_view(map.yaml_name()));
  if (mapping.ok()) return mapping;
  return BlameField(mapping.status(), absl::StrCat(field, ".yaml"));
}

}  // namespace

absl::Status CheckMap(const v1::MapSpec& map, absl::string_view field) {
  DCP_RETURN_IF_ERROR(CheckRules(map, field));
  for (const auto& [text, name] : {
           std::pair(&map.from_side(), ".from_side"),
           std::pair(&map.to_side(), ".to_side"),
       }) {
    if (text->empty()) return Invalid(absl::StrCat(field, name), " is empty");
    DCP_RETURN_IF_ERROR(CheckPattern(*text, absl::StrCat(field, name)));
  }
  for (const auto& [text, name] : {
           std::pair(&map.from_prefix(), ".from_prefix"),
           std::pair(&map.to_prefix(), ".to_prefix"),
           std::pair(&map.from_states_prefix(), ".from_states_prefix"),
           std::pair(&map.to_states_prefix(), ".to_states_prefix"),
       }) {
    DCP_RETURN_IF_ERROR(CheckPattern(*text, absl::StrCat(field, name)));
  }
  DCP_RETURN_IF_ERROR(CheckText(map.config_json(), kMaxModelConfigBytes,
                                absl::StrCat(field, ".config_json")));
  DCP_RETURN_IF_ERROR(CheckSettings(map, absl::StrCat(field, ".settings")));
  DCP_RETURN_IF_ERROR(
      CheckAllowMissing(map, absl::StrCat(field, ".allow_missing")));
  DCP_RETURN_IF_ERROR(
      ParseParts(map.part(), absl::StrCat(field, ".part")).status());
  return ParseUnmatched(map.unmatched(), absl::StrCat(field, ".unmatched"))
      .status();
}

absl::StatusOr<MapSpec> MapFromProto(const v1::MapSpec& map,
                                     absl::string_view field) {
  DCP_ASSIGN_OR_RETURN(Mapping mapping, ParseRules(map, field));
  MapSpec spec{.mapping = std::move(mapping), .options = {}};
  spec.options.from = map.from_side();
  spec.options.to = map.to_side();
  for (const auto& [side, name] : {std::pair(&map.from_side(), ".from_side"),
                                   std::pair(&map.to_side(), ".to_side")}) {
    if (spec.mapping.file().FindSide(*side) != nullptr) continue;
    return BlameField(CheckSides(spec), absl::StrCat(field, name));
  }
  spec.options.config = map.config_json();
  spec.options.settings.insert(map.settings().begin(), map.settings().end());
  DCP_ASSIGN_OR_RETURN(spec.options.parts,
                       ParseParts(map.part(), absl::StrCat(field, ".part")));
  DCP_ASSIGN_OR_RETURN(
      spec.options.unmatched,
      ParseUnmatched(map.unmatched(), absl::StrCat(field, ".unmatched")));
  spec.options.allow_missing.assign(map.allow_missing().begin(),
                                    map.allow_missing().end());
  spec.options.force_family = map.force_family();
  spec.model_from = map.from_prefix();
  spec.model_to = map.to_prefix();
  spec.states_from = map.from_states_prefix();
  spec.states_to = map.to_states_prefix();
  DCP_RETURN_IF_ERROR(BlameField(CheckSides(spec), field));
  return spec;
}

void MapToProto(const MapSpec& map, v1::MapSpec& proto) {
  const MapOptions& options = map.options;
  proto.set_yaml(ToUtf8(map.mapping.text()));
  proto.set_yaml_name(ToUtf8(map.mapping.file_name()));
  proto.set_from_side(ToUtf8(options.from));
  proto.set_to_side(ToUtf8(options.to));
  proto.set_config_json(ToUtf8(options.config));
  for (const auto& [name, value] : options.settings) {
    (*proto.mutable_settings())[ToUtf8(name)] = value;
  }
  if (options.parts == MapOptions::Parts::kModel) proto.set_part("model");
  if (options.parts == MapOptions::Parts::kStates) proto.set_part("optimizer");
  if (options.unmatched == MapOptions::Unmatched::kKeep) {
    proto.set_unmatched("keep");
  } else if (options.unmatched == MapOptions::Unmatched::kDrop) {
    proto.set_unmatched("drop");
  }
  for (const std::string& glob : options.allow_missing) {
    proto.add_allow_missing(ToUtf8(glob));
  }
  proto.set_force_family(options.force_family);
  proto.set_from_prefix(ToUtf8(map.model_from));
  proto.set_to_prefix(ToUtf8(map.model_to));
  proto.set_from_states_prefix(ToUtf8(map.states_from));
  proto.set_to_states_prefix(ToUtf8(map.states_to));
}

uint64_t MapMemoryBytes(const v1::MapSpec& map) {
  return (map.yaml().size() + map.config_json().size()) * kBytesPerByte +
         kPiecesBytes;
}

}  // namespace dcp
