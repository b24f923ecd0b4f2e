// SPDX-License-Identifier: Apache-2.0
// The rule files that come with the library: one for each model family. Any
// thread.
#ifndef DCP_MAPS_BUILTIN_MAPPINGS_H_
#define DCP_MAPS_BUILTIN_MAPPINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/application/mapping.h"

namespace dcp {

// A family's mapping, such as "llama". NotFound, with the known families, for
// others.
absl::StatusOr<Mapping> BuiltinMapping(absl::string_view family);

// The families, sorted.
std::vector<std::string> BuiltinMappings();

// The families for a model with this config.json: those that know the
// model_type at the top or in text_config; all families if there is no
// model_type, or no text. NotFound, with the known types, if no family knows
// it; InvalidArgument if the text is not JSON.
absl::StatusOr<std::vector<std::string>> FamiliesFor(absl::string_view config);

// The text of a family's rule file, which a user may copy and change. NotFound
// as above.
absl::StatusOr<absl::string_view> BuiltinMappingText(absl::string_view family);

}  // namespace dcp

#endif  // DCP_MAPS_BUILTIN_MAPPINGS_H_
