// SPDX-License-Identifier: Apache-2.0
// Which rank writes which boxes: every tensor's boxes on a mesh, with replicas
// written once and bytes spread evenly over the ranks. Pure and deterministic:
// the same input gives the same plan on every rank, without communication.
#ifndef DCP_PLAN_SAVE_PLAN_H_
#define DCP_PLAN_SAVE_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/placement.h"

namespace dcp {

// One value to save. A bytes entry is an item with an empty shape, the length
// as element_bytes and Replicate on every axis.
struct SaveItem {
  Dims shape;
  uint64_t element_bytes = 1;
  Placements placements;  // one per mesh axis
};

// One chunk that a rank writes; `item` indexes the input.
struct WriteItem {
  uint32_t item;
  Box box;

  friend bool operator==(const WriteItem&, const WriteItem&) = default;
};

// One rank's chunks, in item order.
using SavePlan = std::vector<WriteItem>;

// One plan for every rank of `mesh`. Among the ranks that hold a box, the one
// with the fewest bytes so far writes it; among equals, the lowest. A shard
// without elements is written once, by the lowest rank that holds it. Errors
// are those of LocalBoxes and name the item's index.
absl::StatusOr<std::vector<SavePlan>> PlanSave(absl::Span<const SaveItem> items,
                                               const Mesh& mesh);

}  // namespace dcp

#endif  // DCP_PLAN_SAVE_PLAN_H_
