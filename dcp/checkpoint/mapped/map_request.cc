// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/map_request.h"

#include <utility>

#include "absl/status/status.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/checkpoint/mapped/mapped_entries.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"

namespace dcp {
namespace {

absl::Status CheckRequest(const MapRequest& request) {
  const int num_rules = (request.family.empty() ? 0 : 1) +
                        (request.rule_file.empty() ? 0 : 1) +
                        (request.rules.empty() ? 0 : 1);
  if (num_rules != 1) {
    return absl::InvalidArgumentError(
        num_rules == 0
            ? "a mapping needs a family, the path of a rule file, "
              "or the text of one"
            : "the rules of a mapping are a family, the path of a "
              "rule file, or the text of one: give only one of them");
  }
  if (!request.config_file.empty() && !request.config.empty()) {
    return absl::InvalidArgumentError(
        "config.json is given both as a path and as a text: give only one of "
        "them");
  }
  return absl::OkStatus();
}

absl::StatusOr<Mapping> ReadMapping(FileSystem& fs, const MapRequest& request) {
  if (!request.family.empty()) return BuiltinMapping(request.family);
  if (!request.rules.empty()) return ParseMapping(request.rules, "rules");
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       ReadFile(fs, request.rule_file, kMaxMappingBytes,
                                /*follow_symlinks=*/true));
  return ParseMapping(text, request.rule_file);
}

}  // namespace

absl::StatusOr<MapSpec> ReadMap(FileSystem& fs, const MapRequest& request) {
  DCP_RETURN_IF_ERROR(CheckRequest(request));
  DCP_ASSIGN_OR_RETURN(Mapping mapping, ReadMapping(fs, request));
  MapSpec spec{.mapping = std::move(mapping),
               .options = {.from = request.from,
                           .to = request.to,
                           .config = request.config,
                           .settings = request.settings,
                           .parts = request.parts,
                           .unmatched = request.unmatched,
                           .allow_missing = request.allow_missing,
                           .force_family = request.force_family},
               .model_from = request.model_from,
               .model_to = request.model_to,
               .states_from = request.states_from,
               .states_to = request.states_to};
  DCP_RETURN_IF_ERROR(CheckSides(spec));
  if (request.config_file.empty()) return spec;
  DCP_ASSIGN_OR_RETURN(spec.options.config,
                       ReadFile(fs, request.config_file, kMaxModelConfigBytes,
                                /*follow_symlinks=*/true));
  return spec;
}

absl::StatusOr<std::shared_ptr<const MapSpec>> FindMap(
    FileSystem& fs, absl::string_view source, const MapRequest& request) {
  DCP_ASSIGN_OR_RETURN(MapSpec spec, ReadMap(fs, request));
  if (request.config.empty() && request.config_file.empty()) {
    DCP_ASSIGN_OR_RETURN(spec.options.config, FindModelConfig(fs, source));
  }
  return std::make_shared<const MapSpec>(std::move(spec));
}

}  // namespace dcp
