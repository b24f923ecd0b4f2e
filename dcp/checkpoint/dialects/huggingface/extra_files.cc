// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/extra_files.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"

namespace dcp {
namespace {

constexpr absl::string_view kRank = "{rank}";
constexpr absl::string_view kNumber = "{number}";

// "random_states" for "random_states_{rank}.pkl".
std::string PatternStem(absl::string_view pattern) {
  const size_t end = pattern.find(kRank);
  absl::string_view stem = pattern.substr(
      0, end == absl::string_view::npos ? pattern.rfind('.') : end);
  while (absl::EndsWith(stem, "_")) stem.remove_suffix(1);
  return std::string(stem);
}

// Whether the name has something where `placeholder` stands in the pattern.
bool Matches(const DirectoryEntry& entry, absl::string_view pattern,
             absl::string_view placeholder) {
  const std::pair<absl::string_view, absl::string_view> around =
      absl::StrSplit(pattern, absl::MaxSplits(placeholder, 1));
  return entry.kind == FileKind::kFile &&
         entry.name.size() > around.first.size() + around.second.size() &&
         absl::StartsWith(entry.name, around.first) &&
         absl::EndsWith(entry.name, around.second);
}

}  // namespace

absl::StatusOr<std::optional<PartToJoin>> OpenExtraFiles(
    const SourceDirectory& directory,
    absl::Span<const absl::string_view> patterns, const OpenOptions& options,
    const std::stop_token& stop) {
  std::vector<RankFiles> families;
  for (const absl::string_view pattern : patterns) {
    if (absl::StrContains(pattern, kNumber)) {
      for (const DirectoryEntry& entry : directory.entries) {
        if (!Matches(entry, pattern, kNumber)) continue;
        families.push_back(
            {.part = PatternStem(entry.name), .names = {entry.name}});
      }
      continue;
    }
    if (!absl::StrContains(pattern, kRank)) {
      if (directory.HasFile(pattern)) {
        families.push_back({.part = PatternStem(pattern), .names = {}});
        families.back().names.emplace_back(pattern);
      }
      continue;
    }
    const bool is_there =
        std::any_of(directory.entries.begin(), directory.entries.end(),
                    [&](const DirectoryEntry& entry) {
                      return Matches(entry, pattern, kRank);
                    });
    if (!is_there) continue;
    DCP_ASSIGN_OR_RETURN(std::vector<RankFiles> found,
                         FindRankFiles(directory.entries, pattern));
    for (RankFiles& files : found) {
      files.part = PatternStem(pattern);
      families.push_back(std::move(files));
    }
  }
  if (families.empty()) return std::nullopt;
  for (RankFiles& files : families) files.may_be_bare = true;
  DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                       OpenRankFiles(directory, families, options, stop));
  return PartToJoin{.folder = "",
                    .prefix = {PathElement("extra")},
                    .parts = std::move(parts)};
}

}  // namespace dcp
