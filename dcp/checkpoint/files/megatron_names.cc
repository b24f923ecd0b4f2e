// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/megatron_names.h"

#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace dcp {
namespace {

// Removes "chained_{i}." from the beginning of `name`; returns the number.
std::string ConsumeChain(absl::string_view& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "chained_")) return "";
  const size_t end = rest.find('.');
  if (end == 0 || end == absl::string_view::npos) return "";
  const absl::string_view number = rest.substr(0, end);
  for (const char c : number) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return "";
  }
  name = rest.substr(end + 1);
  return std::string(number);
}

// "2.4" as pipeline and tensor.
std::optional<std::array<int64_t, 2>> ParsePair(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  std::array<int64_t, 2> pair{};
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &pair[0]) ||
      !absl::SimpleAtoi(parts[1], &pair[1])) {
    return std::nullopt;
  }
  return pair;
}

}  // namespace

std::optional<StackedName> SplitStackedName(absl::string_view name) {
  constexpr absl::string_view kLayers = ".layers.";
  const size_t at = name.find(kLayers);
  if (at == absl::string_view::npos) return std::nullopt;
  const size_t after = at + kLayers.size();
  if (after == name.size() ||
      absl::ascii_isdigit(static_cast<unsigned char>(name[after]))) {
    return std::nullopt;
  }
  return StackedName{std::string(name.substr(0, after)),
                     absl::StrCat(".", name.substr(after))};
}

std::optional<OptimizerName> SplitOptimizerName(absl::string_view name) {
  OptimizerName result;
  result.chain = ConsumeChain(name);
  if (!absl::ConsumePrefix(&name, "optimizer.state.")) return std::nullopt;
  const size_t dot = name.find('.');
  if (dot == 0 || dot == absl::string_view::npos || dot + 1 == name.size()) {
    return std::nullopt;
  }
  result.state = std::string(name.substr(0, dot));
  result.parameter = std::string(name.substr(dot + 1));
  return result;
}

bool IsOptimizerName(absl::string_view name) {
  ConsumeChain(name);
  return absl::StartsWith(name, "optimizer.");
}

bool IsFlatBuffer(absl::string_view name) {
  ConsumeChain(name);
  return absl::StartsWith(name, "optimizer.distributed.") &&
         absl::StrContains(name, ".gbuf_idx_");
}

std::string MeshInName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "rng_state/shard_")) return "";
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
  if (parts.size() != 2) return "";
  const auto offset = ParsePair(parts[0]);
  const auto shape = ParsePair(parts[1]);
  if (!offset.has_value() || !shape.has_value()) return "";
  for (size_t i = 0; i < 2; ++i) {
    if ((*offset)[i] < 0 || (*offset)[i] >= (*shape)[i]) return "";
  }
  return absl::StrCat("pipeline=", (*shape)[0], ",tensor=", (*shape)[1]);
}

}  // namespace dcp
