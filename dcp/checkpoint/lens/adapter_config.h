// SPDX-License-Identifier: Apache-2.0
// AdapterConfig: what peft's adapter_config.json says of a LoRA adapter that is
// to be merged. Blocking; any thread.
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

  // What the product of B and A is multiplied by.
  double Factor() const;
};

// Reads adapter_config.json in the folder `path`, or next to `path`.
// Unimplemented, naming the key and its value, unless the adapter is plain LoRA
// of linear layers that began with the weights of the model as they are: other
// kinds of adapters, DoRA, ranks or alphas that differ between layers, biases,
// transposed layers, modules that are saved whole, and every key that is not
// known and not off.
absl::StatusOr<AdapterConfig> ReadAdapterConfig(FileSystem& fs,
                                                absl::string_view path,
                                                const std::stop_token& stop);

// Where the tensors of the adapter at `path` are: in the file that peft writes,
// also among the files of a Trainer, or in the checkpoint `path` itself.
std::string AdapterTensors(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_ADAPTER_CONFIG_H_
