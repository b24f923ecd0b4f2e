// SPDX-License-Identifier: Apache-2.0
// Reads a document and adds each problem to the findings.
//
// Tested by tests/config/document/section_test.cc.
#include "config/document/document.h"

#include <utility>
#include <vector>

#include "document/problem.h"

namespace fsdp::config {

Node ParseDocument(absl::string_view name, absl::string_view text,
                   Syntax syntax, Findings& findings) {
  std::vector<dcp::document::Problem> problems;
  Node root = dcp::document::Parse(name, text, syntax, problems);
  for (auto& [place, what] : problems) {
    findings.Problem(std::move(place), std::move(what));
  }
  return root;
}

}  // namespace fsdp::config
