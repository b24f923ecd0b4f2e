// SPDX-License-Identifier: Apache-2.0
// Writes places and problems as text.
//
// Tested by tests/config/document/findings_test.cc.
#include "document/problem.h"

#include "absl/strings/str_cat.h"

namespace dcp::document {

std::string to_string(const SourceLocation& place) {
  std::string text = place.file;
  if (place.line > 0 && !text.empty()) absl::StrAppend(&text, ":", place.line);
  if (place.key.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ": ", place.key);
}

std::string to_string(const Problem& problem) {
  const std::string place = to_string(problem.place);
  if (place.empty()) return problem.text;
  // A place without a key ends in a file or a line, which cannot be the subject
  // of the sentence.
  return absl::StrCat(place, problem.place.key.empty() ? ": " : " ",
                      problem.text);
}

}  // namespace dcp::document
