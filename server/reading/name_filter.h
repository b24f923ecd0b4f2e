// SPDX-License-Identifier: Apache-2.0
// NameFilter: the name patterns of a request; a name matches if any pattern
// does, and every name matches if there are no patterns. Patterns without a
// wildcard are looked up, and all others are matched together, so that a
// thousand are about as fast as one. Immutable; any thread.
#ifndef SERVER_READING_NAME_FILTER_H_
#define SERVER_READING_NAME_FILTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "dcp/base/glob_set.h"

namespace dcp::server {

// After this many names, a loop checks whether the call was cancelled.
inline constexpr uint32_t kNamesPerCheck = 64;

class NameFilter {
 public:
  explicit NameFilter(std::vector<std::string> patterns);

  bool Matches(absl::string_view name) const;

 private:
  absl::flat_hash_set<std::string> names_;
  GlobSet globs_{{}};
};

}  // namespace dcp::server

#endif  // SERVER_READING_NAME_FILTER_H_
