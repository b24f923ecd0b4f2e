// SPDX-License-Identifier: Apache-2.0
// How an output's tensors lie on the meshes that ConvertOptions names. The last
// entry of `placements` that matches a tensor decides; without one, the plan of
// tensor parallelism does, on the first mesh. Without either, the tensor is
// Shard(0) on each axis of the first mesh, except for those that replicate:
// axes with "rep" in the name, and axes of another parallelism than data
// parallelism (tp, cp, ep, etp, pp), where a parameter outside a plan is
// replicated, too. Pure; any thread.
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

// InvalidArgument for mesh options that contradict each other: other meshes
// with another rank count, with equal names, or that no rule names; rules for a
// mesh that is not there, or with another placement count than it has axes; a
// plan for an axis that is not there. Also for an axis named tp, cp, ep, etp or
// pp with more than one rank on a mesh without rules, unless it is the plan's:
// nobody can guess which tensors such an axis cuts.
absl::Status CheckMeshes(const ConvertOptions& options);

// The meshes; the first is ConvertOptions::mesh, which must be there.
std::vector<Mesh> DestinationMeshes(const ConvertOptions& options);

// One layout for each entry, on one of DestinationMeshes. The plan's cut comes
// before the cuts on all other axes, as fully_shard cuts tensors that tensor
// parallelism has cut. InvalidArgument for a rule, or a colwise or rowwise
// entry in the plan, that matches no tensor, and for a plan that does not fit a
// tensor. The options have passed CheckMeshes.
absl::StatusOr<std::vector<EntryLayout>> LayoutEntries(
    absl::Span<const OutputEntry> entries, const ConvertOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_MESH_LAYOUT_H_
