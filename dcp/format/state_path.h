// Names of nested state: flattening a state dict to dotted names as
// torch.distributed.checkpoint does since PyTorch 2.4; state_tree.h is the way
// back. Pure; any thread.
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

// From a container to what stands in it under a key; the key of a list is None.
struct StateStep {
  Value container;
  Value key;
};

struct FlatValue {
  std::string fqn;
  StatePath path;
  Value value;
  // One for each element of the path, or none where they are not known.
  std::vector<StateStep> steps = {};
};

// The leaves of the mapping `root`, in its order. Mappings are descended into
// (keys become text; empty ones leave nothing behind), lists that hold a
// tensor, a mapping or a list that is itself descended into likewise; all else
// is a leaf, tuples too, and mappings with a key that has no text which Python
// would give it here too (objects and globals). InvalidArgument when `root` is
// no mapping or has such a key, or two paths have one name. ResourceExhausted
// when a name is longer than kMaxNameBytes or all together than
// kMaxMetadataBytes.
absl::StatusOr<std::vector<FlatValue>> Flatten(const Value& root);

// The same with the steps to each leaf; empty mappings are leaves here.
absl::StatusOr<std::vector<FlatValue>> FlattenWhole(const Value& root);

// path joined with dots.
std::string PathToName(const StatePath& path);

// The path of an entry after it was renamed: path elements at the end whose
// names are still the end of the new name stay elements, what stands before
// them becomes one. ("model", "a.w") renamed from "model.a.w" to "a.w" is
// ("a.w"); to "net.a.w" is ("net", "a.w"). The first element is a key always.
StatePath RenamePath(const StatePath& path, absl::string_view new_name);

}  // namespace dcp

#endif  // DCP_FORMAT_STATE_PATH_H_
