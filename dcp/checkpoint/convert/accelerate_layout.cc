#include "dcp/checkpoint/convert/accelerate_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/state_part.h"
#include "dcp/format/state_path.h"
#include "dcp/io/file_system.h"

namespace dcp {
namespace {

struct Folder {
  absl::string_view root;  // of the names
  absl::string_view name;
};
constexpr Folder kAccelerateFolders[] = {{"model", "pytorch_model_fsdp_0"},
                                         {"optimizer", "optimizer_0"}};

// The entries as StateParts looks at them.
std::vector<CheckpointEntry> NamesOf(absl::Span<const OutputEntry> entries) {
  std::vector<CheckpointEntry> names(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    names[i].fqn = entries[i].fqn;
    names[i].path = entries[i].path;
    if (entries[i].object != nullptr) names[i].value = ObjectEntry();
  }
  return names;
}

bool IsIn(const OutputEntry& entry, const Folder& folder) {
  const auto* const root = std::get_if<std::string>(&entry.path[0]);
  return root != nullptr && *root == folder.root;
}

// The chunks of the entries of one folder, with their numbers there.
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

// The index as an ordinary file, because a directory has only one that is
// written last.
OutputFile IndexFile(Output& output, absl::string_view folder) {
  auto text = std::make_unique<std::string>(output.index());
  FileLayout layout(JoinPath(folder, output.index_name));
  layout.Append(text->size(), 0, 0);
  return {.layout = std::move(layout),
          .literal = [text = std::move(text)](
                         size_t, absl::Span<const uint32_t>) { return *text; }};
}

// Appends a DCP output, whose files go to `folder`.
void Join(Output from, absl::string_view folder, uint32_t first_entry,
          Output& to) {
  const auto first_payload = static_cast<uint32_t>(to.payloads.size());
  OutputFile index = IndexFile(from, folder);
  for (OutputFile& file : from.files) {
    file.layout.ShiftPayloads(first_payload);
    file.layout.set_name(JoinPath(folder, file.layout.name()));
    to.files.push_back(std::move(file));
  }
  to.files.push_back(std::move(index));
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
  const std::vector<CheckpointEntry> names = NamesOf(entries);
  const StateParts parts(names);
  std::vector<OutputEntry> kept;
  bool has_model = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StateParts::Place place = parts.PlaceOf(names[i]);
    OutputEntry& entry = entries[i];
    if (place.part == StatePart::kExtra) {
      plan.dropped.push_back(entry.fqn);
      --(entry.tensor != nullptr ? plan.num_tensors : plan.num_objects);
      continue;
    }
    has_model = has_model || place.part == StatePart::kModel;
    StatePath path = {PathElement(std::string(StatePartName(place.part)))};
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
  // The option parts takes the root from the names of a single part.
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
  for (const Folder& folder : kAccelerateFolders) {
    std::vector<OutputEntry> some;
    std::vector<uint32_t> numbers(entries.size(), UINT32_MAX);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!IsIn(entries[i], folder)) continue;
      numbers[i] = static_cast<uint32_t>(some.size());
      some.push_back(entries[i]);
    }
    if (some.empty()) continue;
    const auto num_entries = static_cast<uint32_t>(some.size());
    std::map<int64_t, uint64_t> used;  // names, by rank
    DCP_ASSIGN_OR_RETURN(
        Output one,
        BuildDcpOutput(std::move(some), files, RanksIn(ranks, numbers), options,
                       [&used](int64_t rank) {
                         return absl::StrCat("__", rank, "_", used[rank]++,
                                             ".distcp");
                       }));
    Join(std::move(one), folder.name, first_entry, output);
    first_entry += num_entries;
  }
  return output;
}

}  // namespace dcp
