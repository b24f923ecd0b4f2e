// SPDX-License-Identifier: Apache-2.0
// Reading: a config in one dialect and everything that the reader reported
// about it, for tests of readers and writers.
#ifndef TESTS_CONFIG_READING_H_
#define TESTS_CONFIG_READING_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

// One text for each finding: "changed run.yaml:3: fsdp.sharding_strategy is
// read as ...".
inline std::vector<std::string> TextsOf(const Findings& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings.list()) {
    const char* kind = finding.kind == Finding::Kind::kProblem   ? "problem "
                       : finding.kind == Finding::Kind::kChanged ? "changed "
                                                                 : "ignored ";
    texts.push_back(absl::StrCat(kind, to_string(finding)));
  }
  return texts;
}

struct Reading {
  TrainConfig config;
  std::vector<std::string> findings;
};

using Reader = void (*)(const Node&, TrainConfig&, Findings&);

inline Reading ReadWith(Reader reader, absl::string_view name, Syntax syntax,
                        absl::string_view text) {
  Reading reading;
  Findings findings;
  const Node root = ParseDocument(name, text, syntax, findings);
  reader(root, reading.config, findings);
  reading.findings = TextsOf(findings);
  return reading;
}

}  // namespace fsdp::config

#endif  // TESTS_CONFIG_READING_H_
