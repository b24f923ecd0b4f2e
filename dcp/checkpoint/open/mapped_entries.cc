// Tested by tests/tools/dcp_convert/map_options_test.cc.
#include "dcp/checkpoint/open/mapped_entries.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/wrapper_names.h"

namespace dcp {
namespace {

bool IsState(const MappingSide& side, absl::string_view name) {
  return side.states.has_value() && side.states->Match(name).has_value();
}

// Whether the side leaves out what has this name.
bool IsDropped(const MappingSide& side, absl::string_view name) {
  return std::any_of(
      side.drop.begin(), side.drop.end(),
      [&](const NameTemplate& form) { return form.Match(name).has_value(); });
}

// Makes the result from what the mapping says of numbers.
class Builder {
 public:
  Builder(absl::Span<const CheckpointEntry> stored, const MapSpec& spec)
      : stored_(stored),
        spec_(spec),
        from_(*spec.mapping.file().FindSide(spec.options.from)),
        to_(*spec.mapping.file().FindSide(spec.options.to)) {}

  absl::StatusOr<MappedEntries> Build() {
    std::vector<MappingTensor> sources;
    for (uint32_t i = 0; i < stored_.size(); ++i) {
      const TensorEntry* const tensor = stored_[i].tensor();
      if (tensor == nullptr) {
        AddObject(i);
        continue;
      }
      mapped_.entry_of_source.push_back(i);
      mapped_.sources.push_back(tensor);
      sources.push_back({.name = NameOfSource(stored_[i].fqn),
                         .dtype = tensor->dtype,
                         .shape = tensor->shape});
    }
    DCP_ASSIGN_OR_RETURN(mapped_.report,
                         spec_.mapping.Map(sources, spec_.options));
    DCP_RETURN_IF_ERROR(AddTensors());
    mapped_.ties = std::exchange(mapped_.report.ties, {});
    return std::move(mapped_);
  }

 private:
  std::string NameOfSource(absl::string_view fqn) const {
    std::string name = WithoutWrappers(fqn);
    if (spec_.model_from.empty() || IsState(from_, name)) return name;
    return std::string(absl::StripPrefix(name, spec_.model_from));
  }

  std::string NameOfDestination(absl::string_view name) const {
    return absl::StrCat(IsState(to_, name) ? "" : spec_.model_to, name);
  }

  void AddObject(uint32_t stored) {
    const CheckpointEntry& entry = stored_[stored];
    if (IsDropped(from_, NameOfSource(entry.fqn))) return;
    mapped_.entries.push_back(
        {.fqn = entry.fqn, .path = entry.path, .value = entry.object()});
    mapped_.stored.push_back({stored});
  }

  // The pieces come by destination.
  absl::Status AddTensors() {
    std::vector<MappingTensor> made = std::exchange(mapped_.report.tensors, {});
    std::vector<StridedPiece> all = std::exchange(mapped_.report.pieces, {});
    size_t next = 0;
    for (uint32_t i = 0; i < made.size(); ++i) {
      std::vector<StridedPiece> pieces;
      std::vector<uint32_t> stored;
      for (; next < all.size() && all[next].dst == i; ++next) {
        if (all[next].src != StridedPiece::kZeros) {
          stored.push_back(mapped_.entry_of_source[all[next].src]);
        }
        pieces.push_back(std::move(all[next]));
      }
      std::sort(stored.begin(), stored.end());
      stored.erase(std::unique(stored.begin(), stored.end()), stored.end());
      mapped_.stored.push_back(std::move(stored));
      DCP_ASSIGN_OR_RETURN(
          mapped_.tensors.emplace_back(),
          MappedTensor::Make(made[i].dtype, made[i].shape, std::move(pieces),
                             mapped_.sources));
      const std::string name = NameOfDestination(made[i].name);
      mapped_.entries.push_back({.fqn = name,
                                 .path = {PathElement(name)},
                                 .value = mapped_.tensors.back()->entry()});
    }
    return absl::OkStatus();
  }

  const absl::Span<const CheckpointEntry> stored_;
  const MapSpec& spec_;
  const MappingSide& from_;
  const MappingSide& to_;
  MappedEntries mapped_;
};

absl::Status CheckNames(const std::vector<CheckpointEntry>& entries) {
  absl::flat_hash_set<absl::string_view> names;
  for (const CheckpointEntry& entry : entries) {
    if (names.insert(entry.fqn).second) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the mapping would give two values the name '", entry.fqn, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSides(const MapSpec& spec) {
  for (const std::string& side : {spec.options.from, spec.options.to}) {
    if (spec.mapping.file().FindSide(side) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the mapping ", spec.mapping.name(), " has no side '", side,
        "'; it has ", absl::StrJoin(spec.mapping.sides(), ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<MappedEntries> MapEntries(
    absl::Span<const CheckpointEntry> stored, const MapSpec& spec) {
  DCP_RETURN_IF_ERROR(CheckSides(spec));
  DCP_ASSIGN_OR_RETURN(MappedEntries mapped, Builder(stored, spec).Build());
  DCP_RETURN_IF_ERROR(CheckNames(mapped.entries));
  return mapped;
}

}  // namespace dcp
