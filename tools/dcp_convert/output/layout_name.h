// SPDX-License-Identifier: Apache-2.0
// LayoutName: how a tensor is cut, in words, guessed from its chunks, since
// checkpoints do not record placements. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_LAYOUT_NAME_H_
#define TOOLS_DCP_CONVERT_OUTPUT_LAYOUT_NAME_H_

#include <string>

#include "absl/types/span.h"
#include "dcp/tensor/box.h"

namespace dcp::tools {

// "whole" for one chunk; "4 x Shard(0)" if the chunks are torch.chunk's, "2 x
// Shard(0), 3 x Shard(1)" for several dimensions; "4 x Shard(0) (uneven)" for a
// grid with other sizes; otherwise "7 chunks". `boxes` are disjoint and cover
// `shape`. More ranks than chunks may have held the tensor: a rank that held
// nothing, or a replica, leaves no chunk.
//
// `ranks` wrote the boxes, in the same order; empty if they are not known. If
// each of the first ranks wrote one chunk, in the order of a mesh in which the
// second axis cut first, it is "2 x StridedShard(0, 2), 2 x Shard(0)": rank 1
// holds the third of four chunks. FSDP cuts that way after tensor or expert
// parallelism.
std::string LayoutName(absl::Span<const int64_t> shape,
                       absl::Span<const Box> boxes,
                       absl::Span<const int64_t> ranks = {});

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_LAYOUT_NAME_H_
