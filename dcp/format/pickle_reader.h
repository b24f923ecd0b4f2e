// A restricted unpickler: builds plain Values from a pickle of protocol 0 to 5
// and never runs anything. Globals and opcodes are on allow-lists; all others
// are refused with their name and byte offset. Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_READER_H_
#define DCP_FORMAT_PICKLE_READER_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/format/value.h"

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
  // The value that it returns replaces the object on the stack and in
  // everything that is built from it; nullopt leaves the object. This is for
  // pickles of millions of small objects for each of which the caller keeps a
  // token: the memory of replaced objects is freed while the rest is read. The
  // function must therefore not keep any Value that it was given, and `arena`
  // must be empty when reading begins. An object may still change after the
  // call if the pickle fetches it again.
  std::optional<absl::FunctionRef<std::optional<Value>(const Value& object)>>
      replace = std::nullopt;
};

struct PickleResult {
  Value root;
  uint64_t length;  // bytes up to and including STOP
  // The size of `root` when shared parts are counted each time they occur.
  uint64_t expanded_values;
  bool has_unknown_globals = false;
};

// Reads one pickle from the head of `bytes` into `arena`. The result is
// acyclic, at most kMaxPickleDepth deep, and has at most kMaxPickleValues
// values (fewer for short pickles) even when shared parts are counted each time
// they occur, so that callers may recurse and expand. Two reductions are
// carried out as plain data: _codecs.encode to latin1 and bytes() become
// kBytes, and items that OrderedDict or Counter get as an argument become
// items. Objects of protocols 0 and 1 (copyreg._reconstructor) are refused by
// that name. DataLoss for malformed bytes, PermissionDenied for a global that
// is not allowed, or not in this form.
absl::StatusOr<PickleResult> ReadPickle(ByteSpan bytes,
                                        const PickleOptions& options,
                                        ValueArena& arena);

// The globals of training state: collections, torch's tensors, types and
// devices, builtins as constructors of data, paths, numpy scalars and arrays,
// and classes of Python's standard library, Lightning and OmegaConf that only
// hold data. For data.pkl of items and state dicts.
bool IsStateDictGlobal(absl::string_view module, absl::string_view name);

// Globals whose only use is to run code, such as os.system and eval. The list
// stops obvious attacks early; safety does not depend on it.
bool IsCodeGlobal(absl::string_view module, absl::string_view name);

// The globals of .metadata.
bool IsMetadataGlobal(absl::string_view module, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_READER_H_
