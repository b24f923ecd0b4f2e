// SPDX-License-Identifier: Apache-2.0
// FirstUnknownName: decides by names alone whether a checkpoint is spelled as a
// mapping's side. Pure; any thread.
#ifndef DCP_MAPPING_APPLICATION_NAME_SPELLING_H_
#define DCP_MAPPING_APPLICATION_NAME_SPELLING_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/mapping/language/model_sizes.h"

namespace dcp {

// The side's may_lack prefix if rules about `side` expect it and none of the
// parameters in `names` begins with it; otherwise empty.
std::string LackingPrefix(const MappingSide& side,
                          absl::Span<const std::string> names);

// The first of `names` that is unknown: neither a rule nor `drop` on side
// `side` names it, as a tensor, as optimizer state, or as codes or scales in
// `blocks`. nullopt if all are known. `names` have no wrapper prefixes. Rules
// with a `when` of 0 do not count; names that depend on unknown sizes count as
// known. InvalidArgument for a side that is not there or a config that is not
// one, ResourceExhausted after kMaxNameComparisons.
absl::StatusOr<std::optional<std::string>> FirstUnknownName(
    const MappingFile& file, absl::string_view side,
    absl::Span<const std::string> names, absl::string_view config,
    const MappingSettings& settings);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_NAME_SPELLING_H_
