// SPDX-License-Identifier: Apache-2.0
// Matches a plan's patterns with module names, and finds similar names.
//
// Tested by tests/fsdp/parallel/tensor/parallelize_module_test.cc.
#include "fsdp/parallel/tensor/plan_match.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "absl/status/statusor.h"
#include "c10/util/Exception.h"
#include "dcp/tensor/parallel_plan.h"

namespace fsdp {
namespace {

using torch::nn::Module;

// How many letters to change, add or remove.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::vector<MatchedModule> MatchModules(Module& root,
                                        const std::string& pattern) {
  const absl::StatusOr<std::vector<std::string>> choices =
      dcp::ExpandBraces(pattern);
  TORCH_CHECK_VALUE(choices.ok(), "parallelize_module: ",
                    std::string(choices.status().message()));
  std::vector<MatchedModule> found;
  for (const auto& item : root.named_modules()) {
    const bool matches = std::any_of(
        choices->begin(), choices->end(), [&](const std::string& choice) {
          return dcp::MatchesModule(choice, item.key());
        });
    if (matches) found.push_back({item.value().get(), item.key()});
  }
  return found;
}

std::string NearestName(const Module& root, const std::string& pattern) {
  std::string nearest;
  size_t distance = std::numeric_limits<size_t>::max();
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    const size_t d = EditDistance(pattern, item.key());
    if (d >= distance) continue;
    distance = d;
    nearest = item.key();
  }
  return nearest;
}

}  // namespace fsdp
