// SPDX-License-Identifier: Apache-2.0
// A restricted unpickler: builds plain Values from a pickle (protocol 0 to 5)
// and never runs code. Globals and opcodes are on allow-lists; all others are
// refused with their name and byte offset. Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_READER_H_
#define DCP_FORMAT_PICKLE_PICKLE_READER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/format/pickle/pickle_options.h"
#include "dcp/format/value/value.h"

namespace dcp {

struct PickleResult {
  Value root;
  uint64_t length;  // bytes up to and including STOP
  // The size of `root` when shared parts are counted each time they occur.
  uint64_t expanded_values;
  bool has_unknown_globals = false;
};

// Reads one pickle from the start of `bytes` into `arena`. The result is
// acyclic, at most kMaxPickleDepth deep, and has at most kMaxPickleValues
// values (fewer for short pickles) even when shared parts are counted each time
// they occur, so that callers may recurse and expand. Two reductions are
// carried out as plain data: _codecs.encode to latin1 and bytes() become
// kBytes, and items that OrderedDict or Counter get as an argument become
// items. Objects in the form of protocols 0 and 1 (copyreg._reconstructor) are
// refused by that name. DataLoss for malformed bytes, PermissionDenied for a
// global that is not allowed, or not in this form.
absl::StatusOr<PickleResult> ReadPickle(ByteSpan bytes,
                                        const PickleOptions& options,
                                        ValueArena& arena);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_READER_H_
