// SPDX-License-Identifier: Apache-2.0
// FirstUnknownName: whether a side of a mapping is how a checkpoint spells its
// tensors, by their names alone. Pure; any thread.
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

// The prefix that rules about `side` expect and that none of `names`, those of
// a model's parameters, begins with: the one that the side may lack, or none.
std::string LackingPrefix(const MappingSide& side,
                          absl::Span<const std::string> names);

// The first of `names`, which have no names of wrappers, that neither a rule
// nor `drop` of side `side` names, by itself, as a state of an optimizer, or as
// codes or scales of its `blocks`; nullopt if all are known. Rules whose `when`
// is 0 do not count; what nothing tells is left open. InvalidArgument for a
// side that is not there or a config that is not one, ResourceExhausted after
// kMaxNameComparisons.
absl::StatusOr<std::optional<std::string>> FirstUnknownName(
    const MappingFile& file, absl::string_view side,
    absl::Span<const std::string> names, absl::string_view config,
    const MappingSettings& settings);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_NAME_SPELLING_H_
