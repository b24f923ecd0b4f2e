// SPDX-License-Identifier: Apache-2.0
// Problem: a mistake in a document, with the place. Plain data.
#ifndef DOCUMENT_PROBLEM_H_
#define DOCUMENT_PROBLEM_H_

#include <string>

namespace dcp::document {

// The place of a value.
struct SourceLocation {
  std::string file = {};  // as the caller named it; "environment" for variables
  int line = 0;           // from 1; 0: none
  int column = 0;         // from 1, of the value's first character; 0: none
  std::string key =
      {};  // as written, from the root: "fsdp_config.fsdp_version"

  friend bool operator==(const SourceLocation&,
                         const SourceLocation&) = default;
};

struct Problem {
  SourceLocation place;
  std::string text;  // "is given twice": a predicate
};

// "run.yaml:7: fsdp_config.fsdp_version", without missing parts.
std::string to_string(const SourceLocation& place);
// "run.yaml:7: fsdp_config.fsdp_version is given twice".
std::string to_string(const Problem& problem);

}  // namespace dcp::document

#endif  // DOCUMENT_PROBLEM_H_
