// Copies a Value into another arena, with parts replaced on the way: how an
// object outlives the pickle it came from, and how the tensors inside it get
// new storages when it is written elsewhere. Pure; thread-compatible.
#ifndef DCP_FORMAT_VALUE_COPY_H_
#define DCP_FORMAT_VALUE_COPY_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "dcp/format/value.h"

namespace dcp {

// Asked for every container and call before it is copied; a value that it
// returns stands in the copy instead and is not looked into.
using SubstituteFn = absl::FunctionRef<std::optional<Value>(const Value&)>;

// A copy of `value` in `arena`; what was shared stays shared. `value` is
// acyclic and of bounded depth, as ReadPickle promises.
Value CopyValue(ValueArena& arena, const Value& value, SubstituteFn substitute);
Value CopyValue(ValueArena& arena, const Value& value);

// Calls `visit` for every distinct tensor inside `value`, itself included, in
// order of first appearance.
void ForEachTensor(const Value& value,
                   absl::FunctionRef<void(const Value& tensor)> visit);

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_COPY_H_
