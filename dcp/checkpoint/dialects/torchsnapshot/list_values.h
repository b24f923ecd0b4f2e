// SPDX-License-Identifier: Apache-2.0
// Puts lists of plain values together, of which TorchSnapshot stores every
// element apart: DCP, whose names are used here, has them as one value unless
// there is a tensor or a dict in them. Pure; any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_LIST_VALUES_H_
#define DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_LIST_VALUES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// A place in the state of a rank. Elements of lists have indices.
using RankPath = std::pair<int64_t, StatePath>;

// What one rank has at a path, which has at least one element.
struct RankValue {
  RankPath place;
  CheckpointEntry entry;  // without name and path
};

// Replaces the elements of each list that are all objects without tensors, or
// such lists, by one list, which is made in `arena`. A list of which no rank
// has an element becomes an empty one. `others` are places of what is not among
// `values`, and `lists` those of all lists of all ranks, neither of which is
// the whole state. Objects that are made belong to file `file`.
void JoinLists(absl::Span<const RankPath> others,
               absl::Span<const RankPath> lists, uint32_t file,
               ValueArena& arena, std::vector<RankValue>& values);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_LIST_VALUES_H_
