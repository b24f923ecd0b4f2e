// SPDX-License-Identifier: Apache-2.0
// Makes the computed tensors of a checkpoint: blocks, adapters, means.
// Tested by tests/tools/dcp_convert/options/lens_options_test.cc.
#include "dcp/checkpoint/lens/lensed_entries.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/adapter_config.h"
#include "dcp/checkpoint/lens/adapter_layers.h"
#include "dcp/checkpoint/lens/mean_weights.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/mapping/language/mapping_file.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// Sorted by name, so that the first error is always the same.
using Numbers = absl::btree_map<std::string, uint32_t>;
using Tensors = absl::flat_hash_map<absl::string_view, const TensorEntry*>;

Tensors TensorsByName(const StoredEntries& stored) {
  Tensors tensors;
  for (const CheckpointEntry& entry : stored.entries) {
    if (entry.tensor() != nullptr) tensors[entry.fqn] = entry.tensor();
  }
  return tensors;
}

class LensedEntriesBuilder {
 public:
  LensedEntriesBuilder(FileSystem& fs, const StoredEntries& stored,
                       Numbers numbers)
      : fs_(fs), stored_(stored), numbers_(std::move(numbers)) {}

  absl::Status AddBlocks(const MappingBlocks& blocks) {
    for (const auto& [name, number] : numbers_) {
      const auto values = blocks.scales.Match(name);
      if (!values.has_value()) continue;
      const std::string codes = blocks.codes.Format(*values);
      const auto it = numbers_.find(codes);
      if (it == numbers_.end()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "there is ", name, ", but no ", codes, " that it has scales for"));
      }
      const LensTable code_table = ScaleTable(it->second);
      DCP_ASSIGN_OR_RETURN(
          std::unique_ptr<const LensedTensor> tensor,
          blocks.kind == MappingBlocks::Kind::kMxfp4
              ? LensedTensor::Mxfp4(fs_, code_table, ScaleTable(number))
              : LensedTensor::Float8Blocks(fs_, code_table,
                                           ScaleTable(number)));
      lensed_.by_values[it->second] = {.tensor = std::move(tensor),
                                       .name = blocks.weight.Format(*values),
                                       .tables = {number}};
      lensed_.tables.insert(number);
    }
    return CheckScaled(blocks);
  }

  absl::Status AddAdapter(const StoredEntries& adapter,
                          const AdapterConfig& config) {
    DCP_ASSIGN_OR_RETURN(
        const AdapterLayers layers,
        FindAdapterLayers(adapter, [&](absl::string_view name) {
          const auto it = numbers_.find(std::string(name));
          return it == numbers_.end() ? nullptr
                                      : stored_.entries[it->second].tensor();
        }));
    for (const auto& [layer, matrices] : layers) {
      DCP_RETURN_IF_ERROR(AddLayer(adapter, config, layer, matrices));
    }
    return absl::OkStatus();
  }

  absl::Status AddMeans(absl::Span<const StoredEntries> others,
                        const MapSpec& spec) {
    const std::vector<MeanTerm> terms = MeanTerms(stored_.path, spec);
    DCP_RETURN_IF_ERROR(CheckMeanWeights(terms));
    std::vector<double> weights;
    for (const MeanTerm& term : terms) weights.push_back(term.weight);
    std::vector<Tensors> tensors;
    for (const StoredEntries& other : others) {
      tensors.push_back(TensorsByName(other));
      DCP_RETURN_IF_ERROR(CheckSameNames(other, tensors.back()));
    }
    for (uint32_t i = 0; i < stored_.entries.size(); ++i) {
      const TensorEntry* const tensor = stored_.entries[i].tensor();
      if (tensor == nullptr) continue;
      const std::string& name = stored_.entries[i].fqn;
      DCP_RETURN_IF_ERROR(CheckNotQuantized(name, *tensor, "averaged"));
      if (!IsFloatingPoint(tensor->dtype) && !IsComplex(tensor->dtype)) {
        continue;
      }
      std::vector<LensTable> tables = {ScaleTable(i)};
      for (size_t n = 0; n < others.size(); ++n) {
        DCP_RETURN_IF_ERROR(
            CheckNotQuantized(name, *tensors[n].at(name), "averaged"));
        tables.push_back({.name = absl::StrCat(name, " of ", others[n].path),
                          .tensor = tensors[n].at(name),
                          .files = others[n].files});
      }
      DCP_ASSIGN_OR_RETURN(std::unique_ptr<const LensedTensor> mean,
                           LensedTensor::Mean(fs_, std::move(tables), weights));
      lensed_.by_values[i] = {.tensor = std::move(mean)};
    }
    return absl::OkStatus();
  }

  LensedEntries Take() && { return std::move(lensed_); }

 private:
  LensTable ScaleTable(uint32_t number) const {
    return {.name = stored_.entries[number].fqn,
            .tensor = stored_.entries[number].tensor(),
            .files = stored_.files};
  }

  // A code without a scale would silently be taken for a number.
  absl::Status CheckScaled(const MappingBlocks& blocks) const {
    if (blocks.kind != MappingBlocks::Kind::kFloat8) return absl::OkStatus();
    for (const auto& [name, number] : numbers_) {
      const auto values = blocks.codes.Match(name);
      if (!values.has_value() || lensed_.by_values.contains(number) ||
          stored_.entries[number].tensor()->dtype != DType::kFloat8E4M3FN) {
        continue;
      }
      return absl::FailedPreconditionError(
          absl::StrCat(name, " is float8, but its scales ",
                       blocks.scales.Format(*values), " are missing"));
    }
    return absl::OkStatus();
  }

  // Explains why the model lacks the weight for a layer that an adapter
  // changes.
  absl::Status MissingWeightError(const StoredEntries& adapter,
                                  absl::string_view layer) const {
    const std::string module = absl::StrCat(layer, ".");
    for (auto it = numbers_.lower_bound(module);
         it != numbers_.end() && absl::StartsWith(it->first, module); ++it) {
      DCP_RETURN_IF_ERROR(
          CheckNotQuantized(it->first, *stored_.entries[it->second].tensor(),
                            "changed by an adapter"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(adapter.path, " changes ", layer,
                     ".weight, which the model does not have"));
  }

  absl::Status AddLayer(const StoredEntries& adapter,
                        const AdapterConfig& config, absl::string_view layer,
                        const AdapterMatrices& matrices) {
    const auto it = numbers_.find(absl::StrCat(layer, ".weight"));
    if (it == numbers_.end()) return MissingWeightError(adapter, layer);
    const Dims& shape = matrices.a.tensor->shape;
    if (shape.empty() || shape[0] != config.rank) {
      return absl::FailedPreconditionError(
          absl::StrCat(adapter.path, ": ", matrices.a.name, " has shape ",
                       ShapeToString(shape),
                       ", but adapter_config.json says r = ", config.rank));
    }
    DCP_ASSIGN_OR_RETURN(
        std::unique_ptr<const LensedTensor> tensor,
        LensedTensor::Adapter(fs_, ScaleTable(it->second), matrices.a,
                              matrices.b, config.Factor()));
    lensed_.by_values[it->second] = {.tensor = std::move(tensor)};
    return absl::OkStatus();
  }

  absl::Status CheckSameNames(const StoredEntries& other,
                              const Tensors& tensors) const {
    const Tensors mine = TensorsByName(stored_);
    const auto differ = [](const StoredEntries& without, absl::string_view name,
                           const StoredEntries& with) {
      return absl::FailedPreconditionError(absl::StrCat(
          without.path, " does not have the tensor ", name, " of ", with.path,
          "; a mean is over checkpoints with the same tensors"));
    };
    for (const CheckpointEntry& entry : stored_.entries) {
      if (entry.tensor() != nullptr && !tensors.contains(entry.fqn)) {
        return differ(other, entry.fqn, stored_);
      }
    }
    for (const CheckpointEntry& entry : other.entries) {
      if (entry.tensor() != nullptr && !mine.contains(entry.fqn)) {
        return differ(stored_, entry.fqn, other);
      }
    }
    return absl::OkStatus();
  }

  FileSystem& fs_;
  const StoredEntries& stored_;
  const Numbers
      numbers_;  // the stored tensors' numbers, by their names for the rules
  LensedEntries lensed_;
};

}  // namespace

absl::StatusOr<LensedEntries> LensEntries(
    FileSystem& fs, const StoredEntries& stored,
    absl::Span<const StoredEntries> others, const MapSpec& spec,
    absl::FunctionRef<std::string(absl::string_view fqn)> name_of,
    const std::stop_token& stop) {
  Numbers numbers;
  for (uint32_t i = 0; i < stored.entries.size(); ++i) {
    const CheckpointEntry& entry = stored.entries[i];
    if (entry.tensor() != nullptr) numbers[name_of(entry.fqn)] = i;
  }
  const MappingSide& side = *spec.mapping.file().FindSide(spec.options.from);
  LensedEntriesBuilder builder(fs, stored, std::move(numbers));
  if (side.blocks.has_value()) {
    DCP_RETURN_IF_ERROR(builder.AddBlocks(*side.blocks));
  }
  if (!spec.adapter.empty()) {
    DCP_ASSIGN_OR_RETURN(const AdapterConfig config,
                         ReadAdapterConfig(fs, spec.adapter, stop));
    DCP_RETURN_IF_ERROR(builder.AddAdapter(others[0], config));
  } else if (!others.empty()) {
    DCP_RETURN_IF_ERROR(builder.AddMeans(others, spec));
  }
  return std::move(builder).Take();
}

}  // namespace dcp
