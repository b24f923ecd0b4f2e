// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/rank_files.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"

namespace dcp {
namespace {

// Patterns for file names, each with one group for the rank. The first that
// matches a name counts. "world" and "item" are the groups with these names.
struct Family {
  absl::string_view pattern;
  absl::string_view part;  // "{item}": the group with this name
};
constexpr Family kFamilies[] = {
    {R"(model_world_size_(?P<world>\d+)_rank_(?P<rank>\d+)\.pt)", "model"},
    {R"(optim_world_size_(?P<world>\d+)_rank_(?P<rank>\d+)\.pt)", "optimizer"},
    {R"(extra_state_world_size_(?P<world>\d+)_rank_(?P<rank>\d+)\.pt)",
     "extra"},
    {R"(pytorch_model_fsdp(?:_\d+)?_rank(?P<rank>\d+)\.bin)", "model"},
    {R"(optimizer(?:_\d+)?_rank(?P<rank>\d+)\.bin)", "optimizer"},
    {R"(checkpoint_(?P<rank>\d+)\.pt)", ""},
    {R"(.*[._-]rank[_-]?(?P<rank>\d+)\.(?:pt|pth|bin|ckpt))", ""},
};
// Only next to metadata.pkl: otherwise such numbers are mostly steps.
constexpr Family kItems = {R"((?P<item>.+)_(?P<rank>\d+)\.pt)", "{item}"};

struct Match {
  std::string pattern;  // the name, with "{rank}" for the rank
  std::string part;
  int64_t rank = 0;
  std::optional<int64_t> world;
};

std::optional<Match> MatchName(const RE2& expression, absl::string_view part,
                               const std::string& name) {
  std::vector<re2::StringPiece> groups(
      static_cast<size_t>(expression.NumberOfCapturingGroups()) + 1);
  if (!expression.Match(name, 0, name.size(), RE2::ANCHOR_BOTH, groups.data(),
                        static_cast<int>(groups.size()))) {
    return std::nullopt;
  }
  const auto group = [&](const char* key) -> std::optional<absl::string_view> {
    const auto it = expression.NamedCapturingGroups().find(key);
    if (it == expression.NamedCapturingGroups().end()) return std::nullopt;
    const re2::StringPiece& text = groups[static_cast<size_t>(it->second)];
    return absl::string_view(text.data(), text.size());
  };
  Match match;
  const absl::string_view rank = *group("rank");
  // "01" is not how programs write ranks, and would be rank 1 twice.
  const bool plain = rank.size() == 1 || rank[0] != '0';
  if (!plain || !absl::SimpleAtoi(rank, &match.rank) ||
      match.rank >= kMaxRanks) {
    return std::nullopt;
  }
  const size_t at = static_cast<size_t>(rank.data() - name.data());
  match.pattern =
      absl::StrCat(name.substr(0, at), "{rank}", name.substr(at + rank.size()));
  int64_t world = 0;
  if (const auto text = group("world");
      text.has_value() && absl::SimpleAtoi(*text, &world)) {
    match.world = world;
  }
  match.part = std::string(part == "{item}" ? *group("item") : part);
  return match;
}

// The files with one pattern.
struct Found {
  std::string part;
  std::optional<int64_t> world;
  std::map<int64_t, std::string> names;
};

// Ranks as "0-3, 6"; at most ten ranges.
std::string RanksText(const std::map<int64_t, std::string>& names) {
  std::vector<std::string> ranges;
  for (auto it = names.begin(); it != names.end();) {
    const int64_t first = it->first;
    int64_t last = first;
    for (++it; it != names.end() && it->first == last + 1; ++it) ++last;
    ranges.push_back(last == first ? absl::StrCat(first)
                                   : absl::StrCat(first, "-", last));
  }
  constexpr size_t kMaxRanges = 10;
  if (ranges.size() > kMaxRanges) {
    ranges.resize(kMaxRanges);
    ranges.push_back("...");
  }
  return absl::StrJoin(ranges, ", ");
}

absl::StatusOr<RankFiles> Complete(const std::string& pattern, Found found) {
  const int64_t last = found.names.rbegin()->first;
  const int64_t world = std::max(found.world.value_or(0), last + 1);
  if (static_cast<int64_t>(found.names.size()) != world) {
    return absl::NotFoundError(absl::StrCat(
        "of the files ", pattern, " only ", found.names.size(), " of ", world,
        " are there, those of ranks ", RanksText(found.names),
        "; if each machine wrote to its own disk, copy them together"));
  }
  RankFiles files{.part = std::move(found.part), .names = {}};
  for (auto& [rank, name] : found.names) files.names.push_back(std::move(name));
  return files;
}

absl::StatusOr<std::vector<RankFiles>> CompleteAll(
    std::map<std::string, Found> all) {
  std::vector<RankFiles> result;
  std::map<std::string, std::string> patterns;  // by part
  for (auto& [pattern, found] : all) {
    const auto [it, is_new] = patterns.emplace(found.part, pattern);
    if (!is_new) {
      return OptionError(absl::StatusCode::kFailedPrecondition,
                         "there are files ", it->second, " and ", pattern,
                         " of the same ranks; choose some with ",
                         OptionName{"rank_files"});
    }
    absl::StatusOr<RankFiles> files = Complete(pattern, std::move(found));
    if (!files.ok()) return files.status();
    result.push_back(*std::move(files));
  }
  return result;
}

void Add(Match match, const std::string& name,
         std::map<std::string, Found>& all) {
  Found& found = all[match.pattern];
  found.part = std::move(match.part);
  found.world = match.world;
  found.names.emplace(match.rank, name);
}

}  // namespace

absl::StatusOr<std::vector<RankFiles>> FindRankFiles(
    absl::Span<const DirectoryEntry> entries) {
  const bool has_items = std::any_of(
      entries.begin(), entries.end(),
      [](const DirectoryEntry& entry) { return entry.name == "metadata.pkl"; });
  std::vector<std::pair<std::unique_ptr<RE2>, absl::string_view>> families;
  for (const Family& family : kFamilies) {
    families.emplace_back(std::make_unique<RE2>(std::string(family.pattern)),
                          family.part);
  }
  if (has_items) {
    families.emplace_back(std::make_unique<RE2>(std::string(kItems.pattern)),
                          kItems.part);
  }
  std::map<std::string, Found> all;
  for (const DirectoryEntry& entry : entries) {
    for (const auto& [expression, part] : families) {
      std::optional<Match> match = MatchName(*expression, part, entry.name);
      if (!match.has_value()) continue;
      Add(*std::move(match), entry.name, all);
      break;
    }
  }
  return CompleteAll(std::move(all));
}

absl::StatusOr<std::vector<RankFiles>> FindRankFiles(
    absl::Span<const DirectoryEntry> entries, absl::string_view pattern) {
  const size_t at = pattern.find("{rank}");
  if (at == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pattern of rank files, '", pattern, "', must contain {rank}"));
  }
  constexpr size_t kLength = 6;  // for "{rank}"
  // A pattern that is too long for RE2 matches nothing, and RE2 says nothing.
  const RE2 expression(
      absl::StrCat(RE2::QuoteMeta(std::string(pattern.substr(0, at))),
                   R"((?P<rank>\d+))",
                   RE2::QuoteMeta(std::string(pattern.substr(at + kLength)))),
      RE2::Quiet);
  std::map<std::string, Found> all;
  for (const DirectoryEntry& entry : entries) {
    std::optional<Match> match = MatchName(expression, "", entry.name);
    if (match.has_value()) Add(*std::move(match), entry.name, all);
  }
  if (all.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there are no files ", pattern, " of ranks"));
  }
  return CompleteAll(std::move(all));
}

}  // namespace dcp
