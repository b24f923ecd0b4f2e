// SPDX-License-Identifier: Apache-2.0

#include "dcp/maps/builtin_mappings.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
#include "dcp/mapping/application/model_types.h"
#include "dcp/maps/map_texts.h"

namespace dcp {

std::vector<std::string> BuiltinMappings() {
  std::vector<std::string> families;
  for (const MapText& map : MapTexts()) families.emplace_back(map.family);
  return families;
}

absl::StatusOr<absl::string_view> BuiltinMappingText(absl::string_view family) {
  for (const MapText& map : MapTexts()) {
    if (map.family == family) return map.text;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no mapping for \"", family, "\"; there are ",
                   absl::StrJoin(BuiltinMappings(), ", ")));
}

absl::StatusOr<Mapping> BuiltinMapping(absl::string_view family) {
  DCP_ASSIGN_OR_RETURN(const absl::string_view text,
                       BuiltinMappingText(family));
  return ParseMapping(text, absl::StrCat(family, ".yaml"));
}

absl::StatusOr<std::vector<std::string>> FamiliesFor(absl::string_view config) {
  if (config.empty()) return BuiltinMappings();
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> types,
                       ModelTypesIn(config));
  if (types.empty()) return BuiltinMappings();
  std::vector<std::string> known;
  for (const std::string& type : types) {
    std::vector<std::string> families;
    for (const std::string& family : BuiltinMappings()) {
      DCP_ASSIGN_OR_RETURN(const Mapping mapping, BuiltinMapping(family));
      const auto& of_family = mapping.model_types();
      if (std::any_of(of_family.begin(), of_family.end(),
                      [&](const std::string& name) {
                        return IsModelType({type}, name);
                      })) {
        families.push_back(family);
      }
      known.insert(known.end(), of_family.begin(), of_family.end());
    }
    if (!families.empty()) return families;
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return absl::NotFoundError(absl::StrCat(
      "config.json says that the type of the model is ",
      absl::StrJoin(types, " or "),
      ", and no family of mappings is for it; the families are for ",
      absl::StrJoin(known, ", ")));
}

}  // namespace dcp
