// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_names.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace dcp {
namespace {

constexpr size_t kMaxSourcesShown = 3;

}  // namespace

std::string ShortNameList(absl::Span<const absl::string_view> names) {
  const size_t num_shown = std::min(names.size(), kMaxSourcesShown);
  std::string text = absl::StrJoin(names.first(num_shown), ", ");
  if (names.size() > num_shown) {
    const size_t num_left = names.size() - num_shown;
    absl::StrAppend(&text, " and ", num_left,
                    num_left == 1 ? " other" : " others");
  }
  return text;
}

std::string NamesMade(const MapSpec& spec,
                      absl::Span<const absl::string_view> names) {
  return absl::StrCat("; ", spec.mapping.name(), ", from ", spec.options.from,
                      " to ", spec.options.to, ", makes ", ShortNameList(names),
                      " from the stored tensors");
}

}  // namespace dcp
