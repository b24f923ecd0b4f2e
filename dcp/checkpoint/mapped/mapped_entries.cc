// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_entries.h"

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
#include "dcp/base/error_misfit.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/wrapper_names.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/checkpoint/mapped/encoded_names.h"

namespace dcp {
namespace {

bool IsState(const MappingSide& side, absl::string_view name) {
  return side.states.has_value() && side.states->Match(name).has_value();
}

// Whether the side leaves out the tensor `name`.
bool IsDropped(const MappingSide& side, absl::string_view name) {
  return std::any_of(
      side.drop.begin(), side.drop.end(),
      [&](const NameTemplate& form) { return form.Match(name).has_value(); });
}

// An entry's name in the rules.
std::string SourceName(const MappingSide& from, const MapSpec& spec,
                       absl::string_view fqn) {
  std::string name = WithoutWrappers(fqn);
  if (absl::string_view rest = name;
      !spec.states_from.empty() &&
      absl::ConsumePrefix(&rest, spec.states_from)) {
    std::string state = absl::StrCat(from.states->prefix(), rest);
    if (IsState(from, state)) return state;
  }
  if (spec.model_from.empty() || IsState(from, name)) return name;
  return std::string(absl::StripPrefix(name, spec.model_from));
}

// Makes the result from the mapping's numbers.
class MappedEntriesBuilder {
 public:
  MappedEntriesBuilder(FileSystem& fs, LensedEntries lensed,
                       const StoredEntries& stored, const MapSpec& spec)
      : fs_(fs),
        stored_(stored.entries),
        files_(stored.files),
        spec_(spec),
        from_(*spec.mapping.file().FindSide(spec.options.from)),
        to_(*spec.mapping.file().FindSide(spec.options.to)) {
    mapped_.lensed = std::move(lensed);
  }

  absl::StatusOr<MappedEntries> Build() {
    std::vector<MappingTensor> sources;
    absl::flat_hash_map<std::string, absl::string_view> names;
    for (uint32_t i = 0; i < stored_.size(); ++i) {
      const TensorEntry* const tensor = stored_[i].tensor();
      if (tensor == nullptr) {
        AddObject(i);
        continue;
      }
      if (mapped_.lensed.tables.contains(i)) continue;
      if (spec_.encode) {
        // The config.json that is written would describe the encoded ones.
        DCP_RETURN_IF_ERROR(CheckNumbers(i, "next to encoded ones"));
      }
      AddSource(i, *tensor, sources);
      const auto [other, is_new] =
          names.try_emplace(sources.back().name, stored_[i].fqn);
      if (!is_new) {
        return absl::FailedPreconditionError(absl::StrCat(
            "both ", other->second, " and ", stored_[i].fqn, " are '",
            sources.back().name, "' for the rules of ", spec_.mapping.name()));
      }
    }
    absl::StatusOr<MappedTensors> report =
        spec_.mapping.Map(sources, spec_.options);
    if (absl::IsDataLoss(report.status())) return WithMisfit(report.status());
    DCP_ASSIGN_OR_RETURN(mapped_.report, std::move(report));
    if (spec_.encode) {
      DCP_ASSIGN_OR_RETURN(EncodedNames encoded, EncodedNames::Make(spec_));
      encoded_names_.emplace(std::move(encoded));
    }
    DCP_RETURN_IF_ERROR(AddRescaled());
    DCP_RETURN_IF_ERROR(AddTensors());
    if (spec_.encode && !mapped_.has_encoded()) {
      return absl::FailedPreconditionError(
          "nothing can be encoded: the result has no floating-point matrix "
          "with the name of a weight that is not excluded");
    }
    ClassifyRules();
    mapped_.ties = std::exchange(mapped_.report.ties, {});
    return std::move(mapped_);
  }

 private:
  // FailedPrecondition if a stored tensor is a part of a quantized one, and is
  // not decoded.
  absl::Status CheckNumbers(uint32_t stored, absl::string_view action) const {
    if (mapped_.lensed.by_values.contains(stored)) return absl::OkStatus();
    return CheckNotQuantized(stored_[stored].fqn, *stored_[stored].tensor(),
                             action);
  }

  // The same for tensors that the rules move. A tensor that is kept unchanged,
  // under the same name, still means the same.
  absl::Status CheckMoved(const MappingTensor& made,
                          absl::Span<const StridedPiece> pieces) const {
    const std::vector<std::string>& kept = mapped_.report.kept;
    if (std::binary_search(kept.begin(), kept.end(), made.name)) {
      return absl::OkStatus();
    }
    for (const StridedPiece& piece : pieces) {
      if (piece.src == StridedPiece::kZeros) continue;
      DCP_RETURN_IF_ERROR(CheckNumbers(
          mapped_.entry_of_source[mapped_.report.OriginalSource(piece.src)],
          "moved by a rule"));
    }
    return absl::OkStatus();
  }

  void AddSource(uint32_t stored, const TensorEntry& tensor,
                 std::vector<MappingTensor>& sources) {
    const auto it = mapped_.lensed.by_values.find(stored);
    const bool is_lensed = it != mapped_.lensed.by_values.end();
    const TensorEntry& source = is_lensed ? it->second.tensor->entry() : tensor;
    mapped_.entry_of_source.push_back(stored);
    mapped_.sources.push_back(&source);
    sources.push_back(
        {.name = is_lensed && !it->second.name.empty()
                     ? it->second.name
                     : SourceName(from_, spec_, stored_[stored].fqn),
         .dtype = source.dtype,
         .shape = source.shape});
  }

  std::string DestinationName(absl::string_view name) const {
    if (!IsState(to_, name)) return absl::StrCat(spec_.model_to, name);
    if (spec_.states_to.empty()) return std::string(name);
    return absl::StrCat(spec_.states_to,
                        name.substr(to_.states->prefix().size()));
  }

  void AddObject(uint32_t stored) {
    const CheckpointEntry& entry = stored_[stored];
    if (IsDropped(from_, SourceName(from_, spec_, entry.fqn))) return;
    mapped_.entries.push_back(
        {.fqn = entry.fqn, .path = entry.path, .value = entry.object()});
    mapped_.stored.push_back({stored});
  }

  // The numbers for rescaled sources follow all others.
  absl::Status AddRescaled() {
    for (const RescaledSource& rescaled : mapped_.report.rescaled) {
      const uint32_t stored = mapped_.entry_of_source[rescaled.source];
      DCP_ASSIGN_OR_RETURN(
          std::unique_ptr<const LensedTensor> computed,
          LensedTensor::Rescaled(fs_,
                                 {.name = stored_[stored].fqn,
                                  .tensor = mapped_.sources[rescaled.source],
                                  .files = files_},
                                 rescaled));
      AddComputed(std::move(computed), stored);
    }
    return absl::OkStatus();
  }

  // A rule computes if a source is computed, or a destination encoded.
  void ClassifyRules() {
    for (RuleReport& rule : mapped_.report.rules) {
      const bool computes =
          std::any_of(rule.sources.begin(), rule.sources.end(),
                      [&](uint32_t number) {
                        return mapped_.sources[number]->lensed != nullptr;
                      }) ||
          std::any_of(
              rule.destinations.begin(), rule.destinations.end(),
              [&](uint32_t number) { return encoded_.contains(number); });
      if (computes) rule.rule_class = RuleClass::kArithmetic;
    }
  }

  // Adds a source that is computed from a stored entry, and perhaps others.
  const TensorEntry* AddComputed(std::unique_ptr<const LensedTensor> computed,
                                 uint32_t stored) {
    mapped_.sources.push_back(&computed->entry());
    mapped_.entry_of_source.push_back(stored);
    mapped_.computed.push_back(std::move(computed));
    return mapped_.sources.back();
  }

  // Adds the result for a tensor that the rules make: the tensor itself, or the
  // codes and scales. `stored` are the entries that it is made from.
  absl::Status AddResult(const std::string& name, const TensorEntry& tensor,
                         const std::vector<uint32_t>& stored) {
    const bool can_encode = encoded_names_.has_value() &&
                            EncodedNames::CanEncode(tensor.dtype, tensor.shape);
    std::optional<EncodedNames::Names> names;
    if (can_encode) names = encoded_names_->Find(name);
    if (!names.has_value()) {
      if (can_encode && !IsState(to_, name)) {
        mapped_.not_encoded.emplace_back(absl::StripSuffix(name, ".weight"));
      }
      AddEntry(name, tensor, stored);
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(
        LensedTensor::Encoded encoded,
        LensedTensor::EncodedFloat8(
            fs_, {.name = name, .tensor = &tensor, .files = files_}));
    for (auto* part : {&encoded.codes, &encoded.scales}) {
      const TensorEntry* const source =
          AddComputed(std::move(*part), stored.empty() ? 0 : stored.front());
      DCP_ASSIGN_OR_RETURN(
          mapped_.tensors.emplace_back(),
          MappedTensor::Make(source->dtype, source->shape,
                             {WholePiece(0, 0, source->shape)}, {&source, 1}));
      AddEntry(part == &encoded.codes ? names->codes : names->scales,
               mapped_.tensors.back()->entry(), stored);
    }
    return absl::OkStatus();
  }

  void AddEntry(absl::string_view rule_name, const TensorEntry& tensor,
                const std::vector<uint32_t>& stored) {
    const std::string name = DestinationName(rule_name);
    mapped_.entries.push_back(
        {.fqn = name, .path = {PathElement(name)}, .value = tensor});
    mapped_.stored.push_back(stored);
  }

  // The pieces are sorted by destination.
  absl::Status AddTensors() {
    std::vector<MappingTensor> made = std::exchange(mapped_.report.tensors, {});
    std::vector<StridedPiece> all = std::exchange(mapped_.report.pieces, {});
    size_t next = 0;
    for (uint32_t i = 0; i < made.size(); ++i) {
      std::vector<StridedPiece> pieces;
      std::vector<uint32_t> stored;
      for (; next < all.size() && all[next].dst == i; ++next) {
        if (all[next].src != StridedPiece::kZeros) {
          mapped_.AppendStored(all[next].src, stored);
        }
        pieces.push_back(std::move(all[next]));
      }
      DCP_RETURN_IF_ERROR(CheckMoved(made[i], pieces));
      std::sort(stored.begin(), stored.end());
      stored.erase(std::unique(stored.begin(), stored.end()), stored.end());
      DCP_ASSIGN_OR_RETURN(
          mapped_.tensors.emplace_back(),
          MappedTensor::Make(made[i].dtype, made[i].shape, std::move(pieces),
                             mapped_.sources));
      const size_t num_tensors = mapped_.tensors.size();
      DCP_RETURN_IF_ERROR(
          AddResult(made[i].name, mapped_.tensors.back()->entry(), stored));
      if (mapped_.tensors.size() > num_tensors) encoded_.insert(i);
    }
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const absl::Span<const CheckpointEntry> stored_;
  SourceFiles* const files_;
  const MapSpec& spec_;
  const MappingSide& from_;
  const MappingSide& to_;
  std::optional<EncodedNames> encoded_names_;
  // The numbers of encoded destinations.
  absl::flat_hash_set<uint32_t> encoded_;
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

void MappedEntries::AppendStored(uint32_t source,
                                 std::vector<uint32_t>& numbers) const {
  const uint32_t values = entry_of_source[source];
  numbers.push_back(values);
  const auto it = lensed.by_values.find(values);
  if (it == lensed.by_values.end()) return;
  numbers.insert(numbers.end(), it->second.tables.begin(),
                 it->second.tables.end());
}

bool MappedEntries::has_encoded() const {
  return !computed.empty() && computed.back()->is_encoded();
}

bool MappedEntries::are_made_in_parts() const {
  // Each element of a mean is computed by itself.
  return !has_encoded() &&
         std::all_of(lensed.by_values.begin(), lensed.by_values.end(),
                     [](const auto& entry) {
                       return entry.second.tensor->kind() ==
                              LensedTensor::Kind::kMean;
                     });
}

absl::Status CheckSides(const MapSpec& spec) {
  for (const auto& [name, states] :
       {std::pair(spec.options.from, spec.states_from),
        std::pair(spec.options.to, spec.states_to)}) {
    const MappingSide* const side = spec.mapping.file().FindSide(name);
    if (side == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the mapping ", spec.mapping.name(), " has no side '", name,
          "'; it has ", absl::StrJoin(spec.mapping.sides(), ", ")));
    }
    if (!states.empty() && !side->states.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the mapping ", spec.mapping.name(), " does not say how ", name,
          " names the states of an optimizer, so they cannot begin with '",
          states, "'"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MappedEntries> MapEntries(FileSystem& fs,
                                         const StoredEntries& stored,
                                         absl::Span<const StoredEntries> others,
                                         const MapSpec& spec,
                                         const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckSides(spec));
  const MappingSide& from = *spec.mapping.file().FindSide(spec.options.from);
  DCP_ASSIGN_OR_RETURN(
      LensedEntries lensed,
      LensEntries(
          fs, stored, others, spec,
          [&](absl::string_view fqn) { return SourceName(from, spec, fqn); },
          stop));
  DCP_ASSIGN_OR_RETURN(
      MappedEntries mapped,
      MappedEntriesBuilder(fs, std::move(lensed), stored, spec).Build());
  DCP_RETURN_IF_ERROR(CheckNames(mapped.entries));
  return mapped;
}

}  // namespace dcp
