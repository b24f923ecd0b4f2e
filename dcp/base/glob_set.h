// SPDX-License-Identifier: Apache-2.0
// GlobSet: matches many globs at once, in time linear in the name's length,
// whatever the globs are: all are matched in parallel, 64 glob characters per
// step. A set of regular expressions (RE2::Set) needs milliseconds per name for
// a thousand globs with several stars each. Immutable; any thread.
#ifndef DCP_BASE_GLOB_SET_H_
#define DCP_BASE_GLOB_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

// Globs have the syntax of fnmatch(3): * ? [..]; * also matches dots and
// slashes.
class GlobSet {
 public:
  explicit GlobSet(const std::vector<std::string>& globs);

  size_t size() const { return num_globs_; }
  bool MatchesAny(absl::string_view name) const;
  // The index of the last glob that matches.
  std::optional<size_t> LastMatch(absl::string_view name) const;
  // Sets an entry in `matched` for each glob, true if it matches, and returns
  // whether any does.
  bool Match(absl::string_view name, std::vector<bool>& matched) const;

 private:
  using Words = std::vector<uint64_t>;

  // The states reached at the end of `name`.
  Words Run(absl::string_view name) const;

  size_t num_globs_;
  Words first_;   // the states before the first character
  Words last_;    // those in which a glob has matched
  Words repeat_;  // states with a star, which any character keeps
  std::vector<uint32_t> last_state_;  // for each glob
  // For each byte, the states that it leads to from the previous state. Bytes
  // that no glob distinguishes share an entry.
  std::vector<Words> steps_;
  std::array<uint8_t, 256> step_of_;
};

bool MatchesGlob(absl::string_view glob, absl::string_view name);

}  // namespace dcp

#endif  // DCP_BASE_GLOB_SET_H_
