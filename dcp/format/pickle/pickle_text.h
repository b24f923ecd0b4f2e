// SPDX-License-Identifier: Apache-2.0
// The spellings of text and integers inside pickles: which UTF-8 Python
// accepts, latin1, and the readable forms of protocol 0. Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_TEXT_H_
#define DCP_FORMAT_PICKLE_PICKLE_TEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// True for UTF-8 without overlong forms, in which surrogates may be encoded
// as if they were characters (Python's "surrogatepass").
bool IsPickleUtf8(absl::string_view text);

// True for a dotted identifier of printable ASCII, which fits on a line.
bool IsPlainName(absl::string_view name);

// Latin1FromUtf8 returns the latin1 form of `text`, which is UTF-8; nullopt if
// it has characters outside latin1. Utf8FromLatin1 is the inverse.
std::optional<std::string> Latin1FromUtf8(absl::string_view text);
std::string Utf8FromLatin1(absl::string_view bytes);

// `little_endian` (two's complement) without the bytes that only repeat the
// sign; empty for 0.
absl::string_view ShortestInt(absl::string_view little_endian);

// The little-endian two's complement form of a decimal integer with at most
// 4300 digits, which is Python's own limit.
std::optional<std::string> ParseDecimalInt(absl::string_view text);

// Parses a Python 2 string literal, such as 'it\'s\n'.
std::optional<std::string> ParseQuotedString(absl::string_view text);

// Parses Python's raw-unicode-escape, latin1 with \uXXXX and \UXXXXXXXX, to
// UTF-8.
std::optional<std::string> ParseRawUnicode(absl::string_view text);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_TEXT_H_
