// SPDX-License-Identifier: Apache-2.0
// Joins lists with plain values, because TorchSnapshot stores every element
// apart: DCP, which gives the names here, has them as one value unless there is
// a tensor or a dict in them. Pure; any thread.
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

// A place in a rank's state. List elements have indices.
using RankPath = std::pair<int64_t, StatePath>;

// One rank's value at a path, which has at least one element.
struct RankValue {
  RankPath place;
  CheckpointEntry entry;  // without name and path
};

// Replaces the elements in each list that are all objects without tensors, or
// such lists, by one list, which is made in `arena`. A list without elements on
// any rank becomes an empty one. `others` are the places that are not among
// `values`, and `lists` all lists' places on all ranks; neither is the whole
// state. New objects belong to file `file`.
void JoinLists(absl::Span<const RankPath> others,
               absl::Span<const RankPath> lists, uint32_t file,
               ValueArena& arena, std::vector<RankValue>& values);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_TORCHSNAPSHOT_LIST_VALUES_H_
