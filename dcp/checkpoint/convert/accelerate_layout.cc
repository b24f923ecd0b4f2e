// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/accelerate_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/dialects/parts/join_parts.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/files/state_part.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/io/file_system.h"

namespace dcp {
namespace {

// "pytorch_model_fsdp_0" for the root "model", "optimizer_1" for "optimizer_1".
std::string RootFolder(absl::string_view root) {
  const absl::string_view part =
      absl::StartsWith(root, "model") ? "model" : "optimizer";
  absl::string_view number = absl::StripPrefix(root, part);
  if (!absl::ConsumePrefix(&number, "_")) number = "0";
  return absl::StrCat(part == "model" ? "pytorch_model_fsdp" : part, "_",
                      number);
}

const std::string& RootName(const OutputEntry& entry) {
  return std::get<std::string>(entry.path[0]);
}

// The entries in the form that StateParts reads.
std::vector<CheckpointEntry> EntriesWithNames(
    absl::Span<const OutputEntry> entries) {
  std::vector<CheckpointEntry> names(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    names[i].fqn = entries[i].fqn;
    names[i].path = entries[i].path;
    if (entries[i].object != nullptr) names[i].value = ObjectEntry();
  }
  return names;
}

// Whether the path leads to numbered state: optimizer.state.0.exp_avg.
bool IsNumberedState(const StatePath& path) {
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (path[i] != PathElement("state")) continue;
    const auto* const key = std::get_if<std::string>(&path[i + 1]);
    return key == nullptr ||
           std::all_of(key->begin(), key->end(), absl::ascii_isdigit);
  }
  return false;
}

// The chunks of one folder's entries, with their numbers there.
std::vector<DcpRank> RanksIn(absl::Span<const DcpRank> ranks,
                             const std::vector<uint32_t>& numbers) {
  std::vector<DcpRank> some(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const DcpChunk& chunk : ranks[rank]) {
      if (numbers[chunk.entry] == UINT32_MAX) continue;
      some[rank].push_back({numbers[chunk.entry], chunk.box});
    }
  }
  return some;
}

// A text file.
OutputFile TextFile(std::string name, std::string text) {
  FileLayout layout(std::move(name));
  layout.Append(text.size(), 0, 0);
  return {.layout = std::move(layout),
          .literal = [text = std::move(text)](
                         size_t, absl::Span<const uint32_t>) { return text; }};
}

// Appends a DCP output with files in `folder`. The index and the digest of it
// are ordinary files there, because only one index of a directory is written
// last.
void Join(Output from, absl::string_view folder, uint32_t first_entry,
          Output& to) {
  const auto first_payload = static_cast<uint32_t>(to.payloads.size());
  std::string index = from.index();
  std::string digests = WriteDigests({MakeIndexDigest(from.index_name, index)});
  for (OutputFile& file : from.files) {
    file.layout.ShiftPayloads(first_payload);
    file.layout.set_name(JoinPath(folder, file.layout.name()));
    to.files.push_back(std::move(file));
  }
  to.files.push_back(
      TextFile(JoinPath(folder, from.index_name), std::move(index)));
  to.files.push_back(
      TextFile(JoinPath(folder, from.digests_name), std::move(digests)));
  for (Payload& payload : from.payloads) {
    payload.entry += first_entry;
    to.payloads.push_back(std::move(payload));
  }
  to.own_tensors.splice(to.own_tensors.end(), from.own_tensors);
}

}  // namespace

absl::Status NameForAccelerate(const ConvertOptions& options,
                               std::vector<OutputEntry>& entries,
                               ConvertPlan& plan) {
  const std::vector<StatePart>& chosen = options.selection.parts;
  const std::vector<CheckpointEntry> names = EntriesWithNames(entries);
  const StateParts parts(names);
  // The optimizer's numbers mean nothing to FSDP.
  for (const CheckpointEntry& entry : names) {
    if (parts.EntryPlace(entry).part == StatePart::kOptimizer &&
        IsNumberedState(entry.path)) {
      return OptionError(
          absl::StatusCode::kFailedPrecondition,
          "accelerate requires names in the optimizer's state, but there is ",
          entry.fqn, "; ", OptionName{"optimizer_in_model_order"},
          " gives names, ", OptionName{"parts"}, " leaves the optimizer out");
    }
  }
  // A single part owns all names.
  if (chosen.size() != 1) DCP_RETURN_IF_ERROR(parts.Check());
  std::vector<OutputEntry> kept;
  bool has_model = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StateParts::Place place = parts.EntryPlace(names[i]);
    OutputEntry& entry = entries[i];
    if (place.part == StatePart::kExtra) {
      plan.dropped.push_back(entry.fqn);
      --(entry.tensor != nullptr ? plan.num_tensors : plan.num_objects);
      continue;
    }
    has_model = has_model || place.part == StatePart::kModel;
    StatePath path = {
        PathElement(NumberedRoot(StatePartName(place.part), place.number))};
    if (entry.path.empty()) {
      path.emplace_back(entry.fqn);
    } else {
      path.insert(
          path.end(),
          entry.path.begin() + static_cast<std::ptrdiff_t>(place.num_roots),
          entry.path.end());
    }
    entry.path = std::move(path);
    entry.fqn = PathToName(entry.path);
    kept.push_back(std::move(entry));
  }
  entries = std::move(kept);
  // The option parts takes the root away from the names in a single part.
  const bool is_optimizer_alone =
      chosen.size() == 1 && chosen[0] != StatePart::kModel;
  if (has_model && !is_optimizer_alone) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "accelerate requires the model: nothing that is selected belongs to it");
}

absl::StatusOr<Output> BuildAccelerateOutput(std::vector<OutputEntry> entries,
                                             SourceFiles& files,
                                             absl::Span<const DcpRank> ranks,
                                             const DcpOutputOptions& options) {
  Output output;
  output.needs_crcs = true;
  uint32_t first_entry = 0;
  std::set<std::string> roots;
  for (const OutputEntry& entry : entries) roots.insert(RootName(entry));
  for (const std::string& root : roots) {
    std::vector<OutputEntry> some;
    std::vector<uint32_t> numbers(entries.size(), UINT32_MAX);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (RootName(entries[i]) != root) continue;
      numbers[i] = static_cast<uint32_t>(some.size());
      // In that folder, the second model is called "model", too.
      some.push_back(entries[i]);
      some.back().path[0] =
          std::string(absl::StartsWith(root, "model") ? "model" : "optimizer");
      some.back().fqn = PathToName(some.back().path);
    }
    const auto num_entries = static_cast<uint32_t>(some.size());
    std::map<int64_t, uint64_t> used;  // used names, by rank
    DCP_ASSIGN_OR_RETURN(
        Output one,
        BuildDcpOutput(std::move(some), files, RanksIn(ranks, numbers), options,
                       [&used](int64_t rank) {
                         return DataFileName(rank, used[rank]++);
                       }));
    Join(std::move(one), RootFolder(root), first_entry, output);
    first_entry += num_entries;
  }
  return output;
}

}  // namespace dcp
