// A restricted unpickler: builds plain Values from a pickle of protocol 0 to
// 5 and never runs anything. Globals and opcodes are allow-listed; all else
// is refused with its name and its byte offset. Pure; any thread.
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
  // Whether a global that is not allowed becomes a value all the same, unless
  // it would run code. Such values are for looking at and never for writing:
  // see CheckInert.
  bool keep_unknown_globals = false;
  // Called with each object when it is made and again when it has its state.
  // What it returns takes the object's place, on the stack and in what is built
  // from there on; nullopt leaves the object. For pickles of millions of small
  // objects, of which a caller keeps a token each: the memory of what was
  // replaced is freed while the rest is read, so that no Value that the
  // function saw may be kept, and `arena` must hold nothing when reading
  // begins. The object may still change if the pickle fetches it again.
  std::optional<absl::FunctionRef<std::optional<Value>(const Value& object)>>
      replace = std::nullopt;
};

struct PickleResult {
  Value root;
  uint64_t length;  // bytes up to and including STOP
  // How large `root` is when shared parts are counted each time they are met.
  uint64_t expanded_values;
  bool has_unknown_globals = false;
};

// Reads one pickle from the head of `bytes` into `arena`. What it returns is
// acyclic, at most kMaxPickleDepth deep, and at most kMaxPickleValues large
// (and less for short pickles) even when shared parts are counted each time
// they are met, so that callers may recurse and expand. Two reductions are
// carried out as plain data: _codecs.encode to latin1 and bytes() become
// kBytes, items that OrderedDict or Counter get as an argument become items.
// Objects of protocols 0 and 1 (copyreg._reconstructor) are refused by that
// name. DataLoss for malformed bytes, PermissionDenied for a global that is
// not allowed or not allowed in this form.
absl::StatusOr<PickleResult> ReadPickle(ByteSpan bytes,
                                        const PickleOptions& options,
                                        ValueArena& arena);

// The globals of training state: collections, torch's tensors, types and
// devices, builtins as constructors of data, paths, numpy scalars and arrays,
// and what only holds data of Python's standard library, Lightning and
// OmegaConf. For data.pkl of items and state dicts.
bool IsStateDictGlobal(absl::string_view module, absl::string_view name);

// The globals that nobody needs but to run code: os.system, eval and their
// kin. The list stops obvious attacks early; it is not what keeps us safe.
bool IsCodeGlobal(absl::string_view module, absl::string_view name);

// The globals of .metadata.
bool IsMetadataGlobal(absl::string_view module, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_READER_H_
