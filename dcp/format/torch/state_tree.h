// SPDX-License-Identifier: Apache-2.0
// Builds the nested dict that a state's names and paths describe, with the
// original containers if these are known. state_path.h is the inverse. Pure;
// any thread.
#ifndef DCP_FORMAT_TORCH_STATE_TREE_H_
#define DCP_FORMAT_TORCH_STATE_TREE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// InvalidArgument when the paths cannot form one nested dict: an empty path,
// one that runs through another's leaf, two equal paths, a key and an index at
// the same place, an index at the top, a negative or absurdly large index (all
// lists together are limited by kMaxListIndex), or more than kMaxPickleDepth /
// 2 steps.
absl::Status CheckPaths(absl::Span<const StatePath> paths);

// The nested dict with the leaves `leaves`: text keys make dicts, indices make
// lists (gaps are None). An entry with an empty path is stored under the fqn.
// Errors are those of CheckPaths.
absl::StatusOr<Value> Unflatten(ValueArena& arena,
                                absl::Span<const FlatValue> leaves);

// The same with the containers and keys from the leaves' steps: a container
// gets the type that all its contents had as their container before, even if a
// rename moved them; if these differ, it becomes a dict or list. `copy` copies
// keys, and the containers' arguments and states, into `arena`.
absl::StatusOr<Value> UnflattenLike(
    ValueArena& arena, absl::Span<const FlatValue> leaves,
    absl::FunctionRef<Value(const Value&)> copy);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_STATE_TREE_H_
