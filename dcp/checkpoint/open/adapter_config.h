// AdapterConfig: what peft's adapter_config.json says of a LoRA adapter that is
// to be merged. Blocking; any thread.
#ifndef DCP_CHECKPOINT_OPEN_ADAPTER_CONFIG_H_
#define DCP_CHECKPOINT_OPEN_ADAPTER_CONFIG_H_

#include <cstdint>
#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct AdapterConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool uses_rslora = false;  // alpha / sqrt(rank) instead of alpha / rank

  // What the product of B and A is multiplied by.
  float Factor() const;
};

// Reads adapter_config.json in the folder `path`. Unimplemented, naming the
// key, for what merging would do wrong: other kinds of adapters, DoRA, ranks or
// alphas that differ between layers, biases, transposed layers, and modules
// that are saved whole.
absl::StatusOr<AdapterConfig> ReadAdapterConfig(FileSystem& fs,
                                                absl::string_view path,
                                                const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_ADAPTER_CONFIG_H_
