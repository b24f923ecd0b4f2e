// SPDX-License-Identifier: Apache-2.0
// Findings: everything that a config's reader reports, each with a place. A
// reader goes on after a problem, so that a user sees all problems at once. For
// one thread.
#ifndef CONFIG_DOCUMENT_FINDINGS_H_
#define CONFIG_DOCUMENT_FINDINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "config/document/setting.h"

namespace fsdp {

struct Finding {
  enum class Kind : uint8_t {
    kProblem,  // the config cannot be used like this
    kChanged,  // an option means something else here; the text explains it
    kIgnored,  // an option has no effect here; the text says why
  };
  Kind kind;
  SourceLocation place;
  std::string text;  // "is 'FULL_SHRAD', not FULL_SHARD or ...": a predicate

  friend bool operator==(const Finding&, const Finding&) = default;
};

// "run.yaml:7: fsdp_config.fsdp_version is 3, not 1 or 2".
std::string to_string(const Finding& finding);

class Findings {
 public:
  void Problem(SourceLocation place, std::string text) {
    list_.push_back(
        {Finding::Kind::kProblem, std::move(place), std::move(text)});
  }
  void Changed(SourceLocation place, std::string text) {
    list_.push_back(
        {Finding::Kind::kChanged, std::move(place), std::move(text)});
  }
  void Ignored(SourceLocation place, std::string text) {
    list_.push_back(
        {Finding::Kind::kIgnored, std::move(place), std::move(text)});
  }

  // Adds all findings of another list.
  void Append(Findings others);

  const std::vector<Finding>& list() const { return list_; }
  bool has_problems() const;
  // InvalidArgument with every problem, one per line; OK if there are none.
  absl::Status ToStatus() const;

 private:
  std::vector<Finding> list_;
};

}  // namespace fsdp

#endif  // CONFIG_DOCUMENT_FINDINGS_H_
