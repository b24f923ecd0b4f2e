// SPDX-License-Identifier: Apache-2.0
// How the tensors of an output lie on the meshes that ConvertOptions names. A
// tensor lies as the last of `placements` that matches it says; without one, as
// the plan of tensor parallelism does, on the first mesh; and without either,
// it is Shard(0) on each axis of the first mesh, except for those that
// replicate: axes whose name contains "rep", and axes of another parallelism
// than that of data (tp, cp, ep, etp, pp), as a parameter outside a plan lies
// on them. Pure; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_MESH_LAYOUT_H_
#define DCP_CHECKPOINT_CONVERT_MESH_LAYOUT_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/tensor/placement.h"

namespace dcp {

// InvalidArgument for options about meshes that contradict each other: other
// meshes of another number of ranks, with equal names, or that no rule names;
// rules for a mesh that is not there, or with another number of placements than
// it has axes; a plan for an axis that is not there. Also for an axis named tp,
// cp, ep, etp or pp, of more than one rank, on a mesh without rules, unless it
// is the plan's: which tensors such an axis cuts cannot be guessed.
absl::Status CheckMeshes(const ConvertOptions& options);

// The meshes, of which the first is ConvertOptions::mesh, which must be there.
std::vector<Mesh> MeshesOf(const ConvertOptions& options);

// One layout for each entry, on one of MeshesOf. The plan's cut comes before
// those of all other axes, as fully_shard cuts what tensor parallelism has cut.
// InvalidArgument for a rule, or a colwise or rowwise entry of the plan, that
// matches no tensor, and for a plan that does not fit a tensor. The options
// have passed CheckMeshes.
absl::StatusOr<std::vector<EntryLayout>> LayoutEntries(
    absl::Span<const OutputEntry> entries, const ConvertOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_MESH_LAYOUT_H_
