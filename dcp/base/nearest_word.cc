#include "dcp/base/nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dcp {
namespace {

// Levenshtein's distance.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::string_view NearestWord(absl::string_view word,
                              absl::Span<const absl::string_view> candidates) {
  // No word of ours is longer; the distance is quadratic.
  constexpr size_t kMaxWordBytes = 64;
  if (word.size() > kMaxWordBytes) return "";
  size_t best_distance = word.size() / 3 + 1;
  absl::string_view best;
  for (absl::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

}  // namespace dcp
