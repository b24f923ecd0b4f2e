// Names of nested state: flattening a state dict to dotted names as
// torch.distributed.checkpoint does since PyTorch 2.4, and building the nested
// dict again from names and paths. Pure; any thread.
// Source: torch/distributed/checkpoint/_nested_dict.py, _traverse.py.
#ifndef DCP_FORMAT_STATE_PATH_H_
#define DCP_FORMAT_STATE_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

struct FlatValue {
  std::string fqn;
  StatePath path;
  Value value;
};

// The leaves of the mapping `root`, in its order. Mappings are descended into
// (keys become text; empty ones leave nothing behind), lists that hold a
// tensor, a mapping or a list that is itself descended into likewise; all else
// is a leaf, tuples too. InvalidArgument when `root` is no mapping, two paths
// have one name, or a key has no text that Python would give it here too
// (objects and globals). ResourceExhausted when a name is longer than
// kMaxNameBytes or all together than kMaxMetadataBytes.
absl::StatusOr<std::vector<FlatValue>> Flatten(const Value& root);

// path joined with dots.
std::string PathToName(const StatePath& path);

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

// The path of an entry after it was renamed: path elements at the end whose
// names are still the end of the new name stay elements, what stands before
// them becomes one. ("model", "a.w") renamed from "model.a.w" to "a.w" is
// ("a.w"); to "net.a.w" is ("net", "a.w"). The first element is a key always.
StatePath RenamePath(const StatePath& path, absl::string_view new_name);

}  // namespace dcp

#endif  // DCP_FORMAT_STATE_PATH_H_
