// SPDX-License-Identifier: Apache-2.0
// PickleOptions: the allowed contents of a pickle. Plain data.
#ifndef DCP_FORMAT_PICKLE_PICKLE_OPTIONS_H_
#define DCP_FORMAT_PICKLE_PICKLE_OPTIONS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"

namespace dcp {

struct PickleOptions {
  // Whether a global may appear. Names arrive in their Python 3 spelling
  // (__builtin__.long as builtins.int, pathlib._local as pathlib).
  absl::FunctionRef<bool(absl::string_view module, absl::string_view name)>
      allow_global;
  bool allow_persistent_ids = false;
  // Whether a global that is not allowed becomes a value anyway, unless it
  // would run code. Such values may be displayed but never written: see
  // CheckInert.
  bool keep_unknown_globals = false;
  // Called with each object when it is made and again when it has its state.
  // The returned value replaces the object on the stack and in every value
  // built from it; nullopt leaves the object. This is for pickles with millions
  // of small objects, where the caller keeps a token for each: the memory of
  // replaced objects is freed while the rest is read. The function must
  // therefore not keep any Value that it was given, and `arena` must be empty
  // when reading begins. An object may still change after the call if the
  // pickle fetches it again.
  std::optional<absl::FunctionRef<std::optional<Value>(const Value& object)>>
      replace = std::nullopt;
};

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_OPTIONS_H_
