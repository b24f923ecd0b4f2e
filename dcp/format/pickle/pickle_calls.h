// SPDX-License-Identifier: Apache-2.0
// The globals and calls that a pickle may contain, and the result of such a
// call: a plain value if Python's own pickler uses the call to write one, an
// inert kCall otherwise. No code from the pickle ever runs. Used only by the
// pickle reader; one thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_CALLS_H_
#define DCP_FORMAT_PICKLE_PICKLE_CALLS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/pickle/pickle_options.h"
#include "dcp/format/value/value.h"

namespace dcp {

// As the pickle spells it.
struct PickleGlobalName {
  absl::string_view module;
  absl::string_view name;
};

class PickleCalls {
 public:
  // Both must outlive this.
  PickleCalls(const PickleOptions& options, ValueArena& arena)
      : options_(options), arena_(arena) {}

  // Whether a value was made that is not allowed: from another global, or an
  // array of Python objects.
  bool has_unknown_globals() const { return has_unknown_globals_; }

  // PermissionDenied if the options do not let the global appear.
  absl::StatusOr<Value> MakeGlobal(PickleGlobalName global);

  // callable(*args), or callable.__new__(*args) if `is_new`.
  absl::StatusOr<Value> MakeCall(Value callable, Value args, bool is_new);

  // builtins.`name`(argument).
  absl::StatusOr<Value> MakeBuiltin(absl::string_view name, Value argument);

  // Whether `value` is a global that is not allowed but was kept.
  bool IsUnknown(const Value& value) const {
    return value.is(Value::Kind::kGlobal) &&
           !options_.allow_global(value.module(), value.name());
  }

 private:
  absl::StatusOr<Value> MakeBytes(absl::Span<const Value> args);
  absl::StatusOr<Value> MakeEnum(absl::Span<const Value> args);
  absl::StatusOr<Value> MakeOrderedDict(Value callable, const Value& pairs);

  const PickleOptions& options_;
  ValueArena& arena_;
  bool has_unknown_globals_ = false;
};

// Refuses keys that Python cannot hash. `items` alternates keys and values.
absl::Status CheckPickleKeys(absl::Span<const Value> items);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_CALLS_H_
