// SPDX-License-Identifier: Apache-2.0
// The bytes allowed in a rule's words: axis names and variables in formulas.
// Pure.
#ifndef DCP_MAPPING_LANGUAGE_WORD_BYTES_H_
#define DCP_MAPPING_LANGUAGE_WORD_BYTES_H_

#include "absl/strings/ascii.h"

namespace dcp {

inline bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

inline bool IsWordByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_WORD_BYTES_H_
