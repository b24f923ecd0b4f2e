// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/planned_tensor.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

using Words = std::vector<absl::string_view>;

constexpr std::array<absl::string_view, 6> kRoots = {
    "app", "model", "module", "optim", "optimizer", "state"};

bool IsParameterName(absl::string_view word) {
  return word == "weight" || word == "bias";
}

// Word counts after which a module's path may begin, from the fewest; 0 is
// always among them.
std::vector<size_t> FindBegins(const Words& words, size_t end) {
  std::vector<size_t> begins = {0};
  size_t i = 0;
  while (i < end) {
    if (words[i] == "optimizers" && i + 1 < end) {
      i += 2;
    } else if (std::find(kRoots.begin(), kRoots.end(), words[i]) !=
               kRoots.end()) {
      ++i;
    } else {
      break;
    }
    begins.push_back(i);
  }
  return begins;
}

}  // namespace

absl::StatusOr<PlannedTensor> FindPlanned(const ParallelPlan& plan,
                                          absl::string_view name,
                                          size_t num_dims) {
  const Words words = absl::StrSplit(name, '.');
  const bool is_parameter = IsParameterName(words.back());
  const bool is_state = !is_parameter && words.size() >= 2 &&
                        IsParameterName(words[words.size() - 2]);
  if (!is_parameter && !is_state) return PlannedTensor{};
  const size_t end = words.size() - (is_parameter ? 1 : 2);
  const absl::string_view parameter = words[end];
  for (const size_t begin : FindBegins(words, end)) {
    const std::string module =
        absl::StrJoin(words.begin() + static_cast<std::ptrdiff_t>(begin),
                      words.begin() + static_cast<std::ptrdiff_t>(end), ".");
    DCP_ASSIGN_OR_RETURN(const ParallelPlan::Entry* const entry,
                         plan.Find(module));
    if (entry == nullptr) continue;
    PlannedTensor planned = {.entry = entry, .placement = {}};
    const bool is_like_parameter = num_dims == (parameter == "bias" ? 1u : 2u);
    if (is_state && !is_like_parameter) return planned;
    DCP_ASSIGN_OR_RETURN(
        planned.placement,
        ParameterPlacement(entry->style, module, parameter, num_dims));
    return planned;
  }
  return PlannedTensor{};
}

}  // namespace dcp
