// SPDX-License-Identifier: Apache-2.0
// Counts in one pass, with a row for each beginning.
// Tested by tests/tools/dcp_convert/output/inspection_test.cc.
#include "tools/dcp_convert/output/prefix_totals.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"

namespace dcp::tools {
namespace {

// Names that differ only beyond this many components are counted together.
constexpr size_t kMaxDepth = 16;

// `name`'s first `depth` components, without the dot after them.
absl::string_view Beginning(absl::string_view name, size_t depth) {
  size_t end = name.find('.');
  for (; depth > 1 && end != absl::string_view::npos; --depth) {
    end = name.find('.', end + 1);
  }
  return name.substr(0, end);
}

}  // namespace

std::vector<PrefixTotal> TotalsByPrefix(
    absl::Span<const CheckpointEntry* const> tensors, size_t depth) {
  std::vector<PrefixTotal> totals;
  // A name that ends at `depth` is not counted with the longer ones.
  absl::flat_hash_map<std::string, size_t> rows;
  for (const CheckpointEntry* entry : tensors) {
    const absl::string_view name = entry->fqn;
    const absl::string_view beginning = Beginning(name, depth);
    std::string prefix(beginning);
    if (beginning.size() < name.size()) prefix += ".*";
    const auto [row, is_new] = rows.try_emplace(prefix, totals.size());
    if (is_new) totals.push_back({.prefix = std::move(prefix)});
    PrefixTotal& total = totals[row->second];
    const TensorEntry& tensor = *entry->tensor();
    ++total.num_tensors;
    total.num_elements = SaturatingAdd(
        total.num_elements, static_cast<uint64_t>(Volume(tensor.shape)));
    total.num_bytes = SaturatingAdd(total.num_bytes, tensor.num_bytes());
  }
  return totals;
}

size_t DepthForRows(absl::Span<const CheckpointEntry* const> tensors,
                    size_t max_rows) {
  size_t depth = 1;
  while (depth < kMaxDepth) {
    absl::flat_hash_set<absl::string_view> beginnings;
    for (const CheckpointEntry* entry : tensors) {
      beginnings.insert(Beginning(entry->fqn, depth + 1));
      if (beginnings.size() > max_rows) return depth;
    }
    ++depth;
  }
  return depth;
}

}  // namespace dcp::tools
