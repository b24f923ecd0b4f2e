// SPDX-License-Identifier: Apache-2.0
// Names in nested state: flattens a state dict to dotted names as
// torch.distributed.checkpoint does since PyTorch 2.4; state_tree.h is the
// inverse. Pure; any thread. Source:
// torch/distributed/checkpoint/_nested_dict.py, _traverse.py.
#ifndef DCP_FORMAT_TORCH_STATE_PATH_H_
#define DCP_FORMAT_TORCH_STATE_PATH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// From a container to a value in it, under a key; for a list, the key is None.
struct StateStep {
  Value container;
  Value key;
};

struct FlatValue {
  std::string fqn;
  StatePath path;
  Value value;
  // One step for each path element, or empty if they are not known.
  std::vector<StateStep> steps = {};
};

// The leaves of the mapping `root`, in order. Descends into mappings (keys
// become text; empty mappings are left out) and into lists that hold a tensor,
// a mapping or a list that is itself descended into. Any other value is a leaf,
// including tuples, and mappings with keys (objects and globals) that have no
// known text in Python. InvalidArgument when `root` is not a mapping or has
// such a key, or when two paths have the same name. ResourceExhausted when a
// name is longer than kMaxNameBytes, or all together are longer than
// kMaxMetadataBytes.
absl::StatusOr<std::vector<FlatValue>> Flatten(const Value& root);

// The same with the steps to each leaf; here empty mappings are leaves too.
absl::StatusOr<std::vector<FlatValue>> FlattenWhole(const Value& root);

// The elements of `path`, joined with dots.
std::string PathToName(const StatePath& path);

// The path of an entry after it was renamed: the last path elements stay
// elements as long as their names still end the new name; the part before them
// becomes one element. ("model", "a.w") renamed from "model.a.w" to "a.w" is
// ("a.w"); to "net.a.w" it is ("net", "a.w"). The first element is always a
// key.
StatePath RenamePath(const StatePath& path, absl::string_view new_name);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_STATE_PATH_H_
