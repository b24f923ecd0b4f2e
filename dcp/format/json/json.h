// SPDX-License-Identifier: Apache-2.0
// JSON for the formats: a parser that reports events instead of building a
// tree, because a header may name a million tensors, and text quoting for
// writers. Strict (RFC 8259, UTF-8 only, one value, no comments) and limited in
// depth. The event handler decides about duplicate keys. Pure; any thread.
#ifndef DCP_FORMAT_JSON_JSON_H_
#define DCP_FORMAT_JSON_JSON_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/format/file/read_at.h"

namespace dcp {

struct JsonEvent {
  enum class Kind : uint8_t {
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kKey,          // text
    kString,       // text
    kUnsigned,     // number
    kOtherNumber,  // text; negative, fractional or over 64 bits
    kBool,         // number: 0 or 1
    kNull,
  };

  Kind kind;
  // The number of objects and arrays around it. A container's two ends have the
  // same depth, and the keys and values in it one more.
  uint32_t depth;
  absl::string_view text;  // valid during the call
  uint64_t number = 0;
};

// Calls `handle` for each event in `text`, in order; an error from `handle`
// ends the parse and is the result. DataLoss, with the byte offset, when `text`
// is not JSON or nested deeper than kMaxJsonDepth. Events before an error have
// been handled.
absl::Status ParseJson(
    absl::string_view text,
    absl::FunctionRef<absl::Status(const JsonEvent&)> handle);

// The same for a text of `length` bytes that need not fit into memory: `read`
// returns it in blocks, and an error from `read` ends the parse.
absl::Status ParseJson(
    uint64_t length, ReadAt read,
    absl::FunctionRef<absl::Status(const JsonEvent&)> handle);

// `text` between quotation marks, escaped. Bytes that are not UTF-8 become
// U+FFFD, so that the result is always JSON.
std::string QuoteJson(absl::string_view text);

}  // namespace dcp

#endif  // DCP_FORMAT_JSON_JSON_H_
