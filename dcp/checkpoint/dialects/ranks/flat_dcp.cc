// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/flat_dcp.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/flat_hints.h"
#include "dcp/checkpoint/dialects/ranks/flat_model.h"
#include "dcp/checkpoint/formats/item_locator.h"
#include "dcp/tensor/metadata.h"

namespace dcp {
namespace {

// The path element that is a flat parameter's name.
std::optional<size_t> FlatElement(const CheckpointEntry& entry) {
  if (entry.tensor() == nullptr || entry.tensor()->shape.size() != 1) {
    return std::nullopt;
  }
  for (size_t i = 0; i < entry.path.size(); ++i) {
    const std::string* const key = std::get_if<std::string>(&entry.path[i]);
    if (key != nullptr && IsFlatName(*key)) return i;
  }
  return std::nullopt;
}

// Whether this is optimizer state by number: optimizer.state.0.exp_avg.
bool IsNumberedState(const CheckpointEntry& entry) {
  if (entry.tensor() == nullptr || entry.path.size() < 3) return false;
  const size_t last = entry.path.size() - 1;
  const std::string* const key =
      std::get_if<std::string>(&entry.path[last - 1]);
  return entry.path[last - 2] == PathElement("state") && key != nullptr &&
         !key->empty() &&
         std::all_of(key->begin(), key->end(), absl::ascii_isdigit);
}

// DCP takes plain tensors with one name for replicas: it kept only one of the
// pieces that the ranks had under one number.
bool HasLostState(const CheckpointParts& parts) {
  bool any_vector = false;
  bool is_sharded = false;
  for (const CheckpointEntry& entry : parts.entries) {
    const TensorEntry* const tensor = entry.tensor();
    if (tensor == nullptr) continue;
    is_sharded = is_sharded || tensor->boxes.size() > 1;
    if (!IsNumberedState(entry)) continue;
    if (tensor->shape.size() > 1 || tensor->boxes.size() > 1) return false;
    any_vector = any_vector || tensor->shape.size() == 1;
  }
  return any_vector && is_sharded;
}

// The parameters in one entry.
absl::StatusOr<std::vector<CheckpointEntry>> Split(const CheckpointEntry& entry,
                                                   size_t element,
                                                   const FlatHints& hints) {
  const TensorEntry& flat = *entry.tensor();
  DCP_ASSIGN_OR_RETURN(
      const FlatUnit* const unit,
      hints.Find(std::get<std::string>(entry.path[element]), flat.shape[0]));
  StateCollector collector;
  for (const FlatParameter& parameter : unit->parameters) {
    StatePath path = entry.path;
    path[element] = parameter.name;
    StateCollector::Part whole;
    whole.dtype = flat.dtype;
    whole.shape = parameter.shape;
    for (size_t c = 0; c < flat.boxes.size(); ++c) {
      const int64_t begin = flat.boxes[c].offsets[0];
      const int64_t end = begin + flat.boxes[c].sizes[0];
      const int64_t first = std::max(begin, parameter.begin);
      const int64_t last = std::min(end, parameter.begin + parameter.numel);
      if (first >= last) continue;
      TensorEntry chunk;
      chunk.dtype = flat.dtype;
      chunk.shape = flat.boxes[c].sizes;
      chunk.boxes = {WholeBox(chunk.shape)};
      chunk.locations = {flat.locations[c]};
      StateCollector::Part part =
          FlatPart(chunk, first - begin, last - first, parameter.shape,
                   first - parameter.begin);
      for (size_t i = 0; i < part.boxes.size(); ++i) {
        part.locations[i].item = flat.locations[c].item;
        whole.boxes.push_back(std::move(part.boxes[i]));
        whole.locations.push_back(std::move(part.locations[i]));
      }
    }
    DCP_RETURN_IF_ERROR(collector.AddPart(path, /*rank=*/0, std::move(whole)));
  }
  return std::move(collector).Finish();
}

}  // namespace

absl::Status ResolveFlatParameters(FileSystem& fs, const OpenOptions& options,
                                   const std::stop_token& stop,
                                   CheckpointParts& parts) {
  std::vector<uint32_t> flats;
  for (uint32_t i = 0; i < parts.entries.size(); ++i) {
    if (FlatElement(parts.entries[i]).has_value()) flats.push_back(i);
  }
  if (HasLostState(parts)) {
    parts.losses.push_back(
        {.part = StatePart::kOptimizer,
         .text = "optimizer saved by number: the state of all ranks but one "
                 "is lost"});
  }
  if (flats.empty()) return absl::OkStatus();
  if (options.dialect.layout.empty()) {
    const StateParts places(parts.entries);
    parts.losses.push_back(
        {.part = places.EntryPlace(parts.entries[flats[0]]).part,
         .needs_consent = true,
         .text = absl::StrCat("flat parameters of FSDP1 instead of weights: ",
                              ToText({"layout"}),
                              " names the parameters in them")});
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(const FlatHints hints,
                       ReadFlatHints(fs, options.dialect, stop));
  parts.check_index = options.check_index;
  DCP_RETURN_IF_ERROR(LocateItems(fs, parts, ChunksInEntries(parts, flats),
                                  options.locate_memory_bytes, stop,
                                  /*progress=*/nullptr));
  std::vector<CheckpointEntry> entries;
  for (CheckpointEntry& entry : parts.entries) {
    const std::optional<size_t> element = FlatElement(entry);
    if (!element.has_value()) {
      entries.push_back(std::move(entry));
      continue;
    }
    absl::StatusOr<std::vector<CheckpointEntry>> split =
        Split(entry, *element, hints);
    if (!split.ok()) return Annotate(split.status(), entry.fqn);
    std::move(split->begin(), split->end(), std::back_inserter(entries));
  }
  parts.entries = std::move(entries);
  return absl::OkStatus();
}

}  // namespace dcp
