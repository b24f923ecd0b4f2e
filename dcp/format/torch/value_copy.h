// SPDX-License-Identifier: Apache-2.0
// Copies a Value into another arena, with parts replaced on the way: how an
// object outlives the pickle it came from, and how the tensors inside it get
// new storages when it is written elsewhere. Pure; thread-compatible.
#ifndef DCP_FORMAT_TORCH_VALUE_COPY_H_
#define DCP_FORMAT_TORCH_VALUE_COPY_H_

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"

namespace dcp {

// Asked for every container and call before it is copied; a returned value
// replaces it in the copy and is not looked into.
using SubstituteFn = absl::FunctionRef<std::optional<Value>(const Value&)>;

// Copies values from one arena into another. Shared values stay shared, also
// across several calls of Copy. Values are acyclic and have bounded depth, as
// ReadPickle promises. `arena` and `substitute` outlive it.
class ValueCopier {
 public:
  ValueCopier(ValueArena& arena, SubstituteFn substitute)
      : arena_(arena), substitute_(substitute) {}

  Value Copy(const Value& value);

  // Whether a value referred to an enclosing object that was not copied before.
  // None replaces such a reference.
  bool lost() const { return lost_; }

 private:
  Value CopyLeaf(const Value& value);
  std::vector<Value> CopyAll(absl::Span<const Value> values);
  Value CopyContainer(const Value& value);
  Value CopyCall(const Value& value);

  ValueArena& arena_;
  SubstituteFn substitute_;
  absl::flat_hash_map<const void*, Value> copies_;
  bool lost_ = false;
};

// One copy of `value` in `arena`.
Value CopyValue(ValueArena& arena, const Value& value, SubstituteFn substitute);
Value CopyValue(ValueArena& arena, const Value& value);

// Calls `visit` for every distinct tensor inside `value`, `value` included, and
// every storage that is not part of one, in order of first appearance.
void ForEachStored(const Value& value,
                   absl::FunctionRef<void(const Value& stored)> visit);
// The same for every distinct storage, including those in tensors.
void ForEachStorage(const Value& value,
                    absl::FunctionRef<void(const Value& storage)> visit);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_VALUE_COPY_H_
