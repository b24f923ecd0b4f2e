#include "dcp/maps/builtin_mappings.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/status.h"
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

}  // namespace dcp
