// SPDX-License-Identifier: Apache-2.0
// Finds the matrices A and B for each layer in a LoRA adapter.
// Tested by tests/tools/dcp_convert/adapter_option_test.cc.
#include "dcp/checkpoint/lens/adapter_layers.h"

#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/files/state_part.h"
#include "dcp/checkpoint/files/wrapper_names.h"
#include "dcp/format/torch/state_path.h"

namespace dcp {
namespace {

// The prefix that peft adds to the wrapped model's names.
constexpr absl::string_view kPeftPrefix = "base_model.model.";
constexpr absl::string_view kWeight = ".weight";
constexpr absl::string_view kBaseLayer = ".base_layer.";

// A name such as "q_proj.lora_A.default.weight", split into parts.
struct MatrixName {
  std::string layer;
  bool is_a = false;
  std::string adapter;  // "default"; empty if the name has none
};

std::optional<MatrixName> ParseMatrixName(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kWeight)) return std::nullopt;
  for (const bool is_a : {true, false}) {
    const absl::string_view infix = is_a ? ".lora_A" : ".lora_B";
    const size_t at = name.rfind(infix);
    if (at == absl::string_view::npos) continue;
    absl::string_view adapter = name.substr(at + infix.size());
    if (!adapter.empty() && !absl::ConsumePrefix(&adapter, ".")) continue;
    if (absl::StrContains(adapter, '.')) continue;
    return MatrixName{.layer = std::string(name.substr(0, at)),
                      .is_a = is_a,
                      .adapter = std::string(adapter)};
  }
  return std::nullopt;
}

// An entry's name in the model that peft wraps.
std::string NameInModel(const CheckpointEntry& entry, size_t num_roots) {
  std::string name = entry.fqn;
  if (num_roots < entry.path.size()) {
    name = PathToName(
        StatePath(entry.path.begin() + static_cast<std::ptrdiff_t>(num_roots),
                  entry.path.end()));
  }
  name = WithoutWrappers(name);
  const size_t at = absl::string_view(name).find(kPeftPrefix);
  const bool is_wrapped =
      at == 0 || (at != absl::string_view::npos && name[at - 1] == '.');
  return is_wrapped ? name.substr(at + kPeftPrefix.size()) : name;
}

// Whether the model has the tensor, which peft then did not train.
bool IsFrozen(absl::string_view name, const TensorEntry& tensor,
              absl::FunctionRef<const TensorEntry*(absl::string_view name)>
                  find_in_model) {
  if (absl::StrContains(name, kBaseLayer)) return true;
  const TensorEntry* const there = find_in_model(name);
  return there != nullptr && there->shape == tensor.shape;
}

absl::Status CheckLayers(const StoredEntries& adapter,
                         const AdapterLayers& layers,
                         const std::set<std::string>& adapters) {
  if (layers.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(adapter.path, " has no tensor NAME.lora_A.weight"));
  }
  if (adapters.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        adapter.path, " has several adapters: ", absl::StrJoin(adapters, ", "),
        "; convert the tensors of one of them first, and merge the result"));
  }
  for (const auto& [layer, matrices] : layers) {
    if (matrices.a.tensor != nullptr && matrices.b.tensor != nullptr) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        adapter.path, " lacks ", layer,
        matrices.a.tensor == nullptr ? ".lora_A" : ".lora_B", kWeight));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AdapterLayers> FindAdapterLayers(
    const StoredEntries& adapter,
    absl::FunctionRef<const TensorEntry*(absl::string_view name)>
        find_in_model) {
  AdapterLayers layers;
  std::set<std::string> adapters;
  const StateParts parts(adapter.entries);
  for (const CheckpointEntry& entry : adapter.entries) {
    const StateParts::Place place = parts.EntryPlace(entry);
    if (entry.tensor() == nullptr || place.part != StatePart::kModel) continue;
    const std::string name = NameInModel(entry, place.num_roots);
    std::optional<MatrixName> matrix = ParseMatrixName(name);
    if (!matrix.has_value()) {
      if (IsFrozen(name, *entry.tensor(), find_in_model)) continue;
      return absl::UnimplementedError(absl::StrCat(
          adapter.path, ": ", entry.fqn,
          " is neither NAME.lora_A.weight nor NAME.lora_B.weight, and the "
          "model does not have it; only plain LoRA of linear layers can be "
          "merged"));
    }
    AdapterMatrices& matrices = layers[matrix->layer];
    LensTable& table = matrix->is_a ? matrices.a : matrices.b;
    if (table.tensor != nullptr && adapters.contains(matrix->adapter)) {
      return absl::FailedPreconditionError(
          absl::StrCat(adapter.path, ": both ", table.name, " and ", entry.fqn,
                       " are for the layer ", matrix->layer));
    }
    adapters.insert(std::move(matrix->adapter));
    table = {
        .name = entry.fqn, .tensor = entry.tensor(), .files = adapter.files};
  }
  const absl::Status checked = CheckLayers(adapter, layers, adapters);
  if (!checked.ok()) return checked;
  return layers;
}

}  // namespace dcp
