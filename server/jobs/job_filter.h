// SPDX-License-Identifier: Apache-2.0
// JobFilter: the jobs that a client asks ListOperations for, in the subset of
// https://google.aip.dev/160 that tessera/v1/job_service.proto describes. The
// text is hostile: length, comparisons, depth and the time of a match are
// bounded. Immutable; any thread.
#ifndef SERVER_JOBS_JOB_FILTER_H_
#define SERVER_JOBS_JOB_FILTER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace dcp::server {

// Enough for a person or a small program. Each comparison is made for each job.
inline constexpr size_t kMaxFilterBytes = 1000;
inline constexpr size_t kMaxFilterComparisons = 50;
inline constexpr size_t kMaxFilterDepth = 20;

class JobFilter {
 public:
  // Matches every job.
  JobFilter() = default;

  // InvalidArgument (INVALID_FILTER) names the column, counted from 1, and the
  // tokens that are allowed there. An empty text matches every job.
  static absl::StatusOr<JobFilter> Parse(absl::string_view text);

  bool Matches(const Job& job) const;

  // The text that was parsed.
  const std::string& text() const { return text_; }

 private:
  friend class JobFilterParser;

  enum class Field : uint8_t {
    kState,
    kKind,
    kDone,
    kSource,
    kDestination,
    kCreateTime,
    kStartTime,
    kEndTime,
    kNumRestarts,
    kMemoryBytes,
  };
  enum class Comparator : uint8_t {
    kEqual,
    kNotEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kHas,
    kPresent,  // ":*"
  };
  struct Comparison {
    Field field = Field::kState;
    Comparator comparator = Comparator::kEqual;
    // The operand; which member is set depends on the field.
    uint64_t number = 0;  // also a state, a kind, or 1 for true
    absl::Time time;
    std::string text = {};
    // Whether any text may precede, or follow, `text`.
    bool open_begin = false;
    bool open_end = false;
  };
  // The filter in postfix form: a comparison pushes a result, and operators
  // replace the results on top of the stack.
  struct Step {
    enum class Kind : uint8_t { kCompare, kNot, kAnd, kOr };
    Kind kind = Kind::kCompare;
    size_t comparison = 0;
  };

  static bool Compare(const Comparison& comparison, const Job& job);
  static bool CompareText(const Comparison& comparison, absl::string_view text);

  std::string text_;
  std::vector<Comparison> comparisons_;
  std::vector<Step> steps_;
};

}  // namespace dcp::server

#endif  // SERVER_JOBS_JOB_FILTER_H_
