// SPDX-License-Identifier: Apache-2.0
// FindAdapterLayers: a LoRA adapter's matrices, written by peft
// (base_model.model.NAME.lora_A.weight), or by a run that has the whole model,
// with the adapter's name (lora_A.default.weight), the names of wrappers and a
// place for the model in front. Pure; any thread.
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

// The matrices that change one layer's weight: both exist.
struct AdapterMatrices {
  LensTable a;
  LensTable b;
};

// By the layer's name in the model, without ".weight".
using AdapterLayers = absl::btree_map<std::string, AdapterMatrices>;

// The layers in `adapter`, which must outlive the result. `find_in_model`
// returns the model's tensor with a name, or null: peft trains none of these,
// so the copies in an adapter run's checkpoint are ignored. FailedPrecondition
// if a matrix is missing or there are several adapters; Unimplemented, naming
// the tensor, for anything else that is not a plain LoRA matrix.
absl::StatusOr<AdapterLayers> FindAdapterLayers(
    const StoredEntries& adapter,
    absl::FunctionRef<const TensorEntry*(absl::string_view name)>
        find_in_model);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_ADAPTER_LAYERS_H_
