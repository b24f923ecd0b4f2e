// GlobSet: many globs at once, in a time that is linear in the name, whatever
// the globs are: all of them are matched side by side, 64 of their characters a
// step. A set of regular expressions (RE2::Set) needs milliseconds a name where
// a thousand globs have several stars each. Immutable; any thread.
#ifndef DCP_CHECKPOINT_GLOB_SET_H_
#define DCP_CHECKPOINT_GLOB_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

// Globs are those of fnmatch(3): * ? [..]; * also matches dots and slashes.
class GlobSet {
 public:
  explicit GlobSet(const std::vector<std::string>& globs);

  size_t size() const { return num_globs_; }
  bool MatchesAny(absl::string_view name) const;
  // The last of the globs that matches.
  std::optional<size_t> LastMatch(absl::string_view name) const;
  // Notes in `matched`, which has a place for each glob, those that match, and
  // returns whether there are any.
  bool Match(absl::string_view name, std::vector<bool>& matched) const;

 private:
  using Words = std::vector<uint64_t>;

  // The states that are reached at the end of `name`.
  Words Run(absl::string_view name) const;

  size_t num_globs_;
  Words first_;   // the states before anything was read
  Words last_;    // those in which a glob has matched
  Words repeat_;  // those with a star, which any character leaves as they are
  std::vector<uint32_t> last_state_;  // of each glob
  // For each byte, the states that it leads to from the previous state. Bytes
  // that no glob tells apart share an entry.
  std::vector<Words> steps_;
  std::array<uint8_t, 256> step_of_;
};

bool MatchesGlob(absl::string_view glob, absl::string_view name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_GLOB_SET_H_
