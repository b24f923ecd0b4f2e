// SPDX-License-Identifier: Apache-2.0
// The rule files that come with the library: one for each family of models.
// Any thread.
#ifndef DCP_MAPS_BUILTIN_MAPPINGS_H_
#define DCP_MAPS_BUILTIN_MAPPINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/application/mapping.h"

namespace dcp {

// The mapping of a family, such as "llama". NotFound, with the families that
// there are, for others.
absl::StatusOr<Mapping> BuiltinMapping(absl::string_view family);

// The families, sorted.
std::vector<std::string> BuiltinMappings();

// The families for a model whose config.json has this text: those that know its
// model_type, or that of its text_config; all if it says none, or is empty.
// NotFound, with the types that there are, if none knows it; InvalidArgument if
// the text is not JSON.
absl::StatusOr<std::vector<std::string>> FamiliesFor(absl::string_view config);

// The text of a family's rule file, which a user may copy and change. NotFound
// as above.
absl::StatusOr<absl::string_view> BuiltinMappingText(absl::string_view family);

}  // namespace dcp

#endif  // DCP_MAPS_BUILTIN_MAPPINGS_H_
