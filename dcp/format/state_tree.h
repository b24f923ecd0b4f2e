// The nested dict that names and paths of a state spell, with the containers
// that it had where these are known. state_path.h is the way there. Pure; any
// thread.
#ifndef DCP_FORMAT_STATE_TREE_H_
#define DCP_FORMAT_STATE_TREE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/format/state_path.h"
#include "dcp/format/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// InvalidArgument when the paths cannot be one nested dict: an empty path, one
// that runs through another's leaf, two that are equal, a key and an index at
// the same place, an index at the top, a negative or an absurdly large index
// (all lists together see kMaxListIndex), more than kMaxPickleDepth / 2 steps.
absl::Status CheckPaths(absl::Span<const StatePath> paths);

// The nested dict whose leaves are `leaves`: text keys make dicts, indices
// lists (gaps are None). An entry with an empty path stands under its fqn.
// Fails as CheckPaths does.
absl::StatusOr<Value> Unflatten(ValueArena& arena,
                                absl::Span<const FlatValue> leaves);

// The same with the containers and keys that the steps of the leaves tell: a
// container becomes what all that stands in it stood in before, also where a
// rename moved it, and a dict or list where they disagree. `copy` brings keys,
// and the arguments and states of containers, into `arena`.
absl::StatusOr<Value> UnflattenLike(
    ValueArena& arena, absl::Span<const FlatValue> leaves,
    absl::FunctionRef<Value(const Value&)> copy);

}  // namespace dcp

#endif  // DCP_FORMAT_STATE_TREE_H_
