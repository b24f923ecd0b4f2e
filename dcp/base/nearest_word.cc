// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace dcp {
namespace {

// The number of letters that are missing, superfluous, different, or swapped
// with a neighbour (optimal string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // the rows i - 2 and i - 1
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

absl::string_view NearestWord(absl::string_view word,
                              absl::Span<const absl::string_view> candidates) {
  // None of our words is longer, and the distance takes quadratic time.
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
