// SPDX-License-Identifier: Apache-2.0
// Lists of names in errors about a mapping: the first few, and how many others
// there are. Pure; any thread.
#ifndef DCP_CHECKPOINT_MAPPED_MAPPED_NAMES_H_
#define DCP_CHECKPOINT_MAPPED_MAPPED_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/map_spec.h"

namespace dcp {

// "a, b, c and 5 others".
std::string ShortNameList(absl::Span<const absl::string_view> names);

// For an error about a missing name: the names that the mapping makes instead,
// "; llama, from hf to torchtitan, makes a, b, c and 5 others from the
// stored tensors". `names` are all tensors that it makes.
std::string NamesMade(const MapSpec& spec,
                      absl::Span<const absl::string_view> names);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAPPED_NAMES_H_
