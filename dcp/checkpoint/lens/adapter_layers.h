// SPDX-License-Identifier: Apache-2.0
// FindAdapterLayers: the matrices of a LoRA adapter, whatever wrote them: peft
// (base_model.model.NAME.lora_A.weight), or a run that has the whole model,
// with the name of the adapter (lora_A.default.weight), the names of wrappers
// and a place for the model in front. Pure; any thread.
#ifndef DCP_CHECKPOINT_LENS_ADAPTER_LAYERS_H_
#define DCP_CHECKPOINT_LENS_ADAPTER_LAYERS_H_

#include <string>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/stored_entries.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"

namespace dcp {

// What changes the weight of one layer: both are there.
struct AdapterMatrices {
  LensTable a;
  LensTable b;
};

// By the name of the layer in the model, without ".weight".
using AdapterLayers = absl::btree_map<std::string, AdapterMatrices>;

// The layers of the adapter `adapter`, which must outlive the result.
// `find_in_model` gives the tensor of the model that has a name, or null: peft
// trains none of these, so those that the adapter's run has too do not count.
// FailedPrecondition if a matrix is missing or there are several adapters;
// Unimplemented, naming the tensor, for anything else that is not a matrix of
// plain LoRA.
absl::StatusOr<AdapterLayers> FindAdapterLayers(
    const StoredEntries& adapter,
    absl::FunctionRef<const TensorEntry*(absl::string_view name)>
        find_in_model);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_ADAPTER_LAYERS_H_
