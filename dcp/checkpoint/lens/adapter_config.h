// SPDX-License-Identifier: Apache-2.0
// AdapterConfig: the facts in peft's adapter_config.json about a LoRA adapter
// that will be merged. Blocking; any thread.
#ifndef DCP_CHECKPOINT_LENS_ADAPTER_CONFIG_H_
#define DCP_CHECKPOINT_LENS_ADAPTER_CONFIG_H_

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct AdapterConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool uses_rslora = false;  // alpha / sqrt(rank) instead of alpha / rank

  // Multiplies the product B A.
  double Factor() const;
};

// Reads adapter_config.json in the folder `path`, or next to `path`.
// Unimplemented, naming the key and the value, unless the adapter is plain LoRA
// on linear layers that began with the model's weights unchanged: other adapter
// kinds, DoRA, ranks or alphas that differ between layers, biases, transposed
// layers, modules that are saved whole, and every unknown key that is not off.
absl::StatusOr<AdapterConfig> ReadAdapterConfig(FileSystem& fs,
                                                absl::string_view path,
                                                const std::stop_token& stop);

// The path of the adapter's tensors: the file that peft writes in `path`, also
// among a Trainer's files, or the checkpoint `path` itself.
std::string AdapterTensors(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_ADAPTER_CONFIG_H_
