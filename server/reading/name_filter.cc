// SPDX-License-Identifier: Apache-2.0

#include "server/reading/name_filter.h"

#include <utility>

namespace dcp::server {

NameFilter::NameFilter(std::vector<std::string> patterns) {
  std::vector<std::string> globs;
  for (std::string& pattern : patterns) {
    if (pattern.find_first_of("*?[\\") == std::string::npos) {
      names_.insert(std::move(pattern));
    } else {
      globs.push_back(std::move(pattern));
    }
  }
  globs_ = GlobSet(globs);
}

bool NameFilter::Matches(absl::string_view name) const {
  if (names_.empty() && globs_.size() == 0) return true;
  return names_.contains(name) || globs_.MatchesAny(name);
}

}  // namespace dcp::server
