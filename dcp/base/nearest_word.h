// SPDX-License-Identifier: Apache-2.0
// NearestWord: the option, verb or key that a misspelt word was probably meant
// to be. Pure; any thread.
#ifndef DCP_BASE_NEAREST_WORD_H_
#define DCP_BASE_NEAREST_WORD_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// The candidate that `word` was probably meant to be, or empty if none is close
// enough. A third of the letters may be wrong; two swapped letters count as
// one.
absl::string_view NearestWord(absl::string_view word,
                              absl::Span<const absl::string_view> candidates);

}  // namespace dcp

#endif  // DCP_BASE_NEAREST_WORD_H_
