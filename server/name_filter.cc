#include "server/name_filter.h"

#include <algorithm>
#include <utility>

#include "dcp/checkpoint/selection.h"

namespace dcp::server {

NameFilter::NameFilter(std::vector<std::string> patterns) {
  for (std::string& pattern : patterns) {
    if (pattern.find_first_of("*?[\\") == std::string::npos) {
      names_.insert(std::move(pattern));
    } else {
      globs_.push_back(std::move(pattern));
    }
  }
}

bool NameFilter::Matches(absl::string_view name) const {
  if (names_.empty() && globs_.empty()) return true;
  return names_.contains(name) ||
         std::any_of(globs_.begin(), globs_.end(),
                     [&](const auto& glob) { return MatchesGlob(glob, name); });
}

}  // namespace dcp::server
