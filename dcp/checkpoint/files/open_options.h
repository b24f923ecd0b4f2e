// SPDX-License-Identifier: Apache-2.0
// OpenOptions: how a checkpoint is opened, and the progress while it is opened.
#ifndef DCP_CHECKPOINT_FILES_OPEN_OPTIONS_H_
#define DCP_CHECKPOINT_FILES_OPEN_OPTIONS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Progress while a checkpoint is opened. Written by the threads that open and
// locate, read by any thread.
struct OpenProgress {
  // The items to locate, and the items done; both 0 while the index is read.
  std::atomic<uint64_t> num_items{0};
  std::atomic<uint64_t> num_items_located{0};
};

// How a framework's checkpoint is read. The defaults work without any choice;
// each field is about one dialect, and other dialects ignore it.
struct DialectOptions {
  // Reads the checkpoint as this dialect instead of recognising one.
  std::optional<Dialect> from = {};
  // ranks: the pattern of the file names, such as "weights.{rank}.th"; empty:
  // the known patterns.
  std::string rank_files = {};
  // ranks, FSDP1's flat parameters: the path to a JSON file with the parameters
  // in each flat one,
  // [{"flat": "layers.0._flat_param",
  //   "params": [{"name": "w", "shape": [4, 3]}, {"padding": 4}]}].
  std::string layout = {};
  // For flat parameters with known names and sizes but unknown shapes: the path
  // to a checkpoint in one file that has the shapes.
  std::string like = {};
  // ranks, a flat FSDP1 optimizer next to a model that is not flat: the wrapped
  // modules, such as "model.layers.*".
  std::string flat_units = {};
  // deepspeed, stages 0 to 2: the 16-bit weights that the model computed with,
  // instead of the optimizer's in float32.
  bool low_precision_weights = false;
  // ranks, deepspeed, accelerate: the optimizer got the parameters in the
  // model's order, so numbers in the state become names where the shapes alone
  // do not decide.
  bool optimizer_in_model_order = false;
  // megatron: "decoder.layers.S" with shape (L, ...) as L tensors
  // "decoder.layers.0.S" and so on.
  bool unstack_layers = false;
  // megatron: optimizer.state.NAME.exp_avg instead of
  // optimizer.state.exp_avg.NAME, and the optimizer's weights as the model's.
  bool torch_optimizer_names = false;

  friend bool operator==(const DialectOptions&,
                         const DialectOptions&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const DialectOptions& options) {
    return H::combine(std::move(h), options.from, options.rank_files,
                      options.layout, options.like, options.flat_units,
                      options.low_precision_weights,
                      options.optimizer_in_model_order, options.unstack_layers,
                      options.torch_optimizer_names);
  }
};

struct OpenOptions {
  DirectMode direct = DirectMode::kAuto;
  // For a checkpoint saved with use_collectives=False, which has an index for
  // each rank (__{rank}.metadata): the one rank to read. Without it, all ranks'
  // indices are read together.
  int64_t rank = -1;
  DialectOptions dialect = {};
  // Gives the tensors another program's names and shapes. Optional.
  std::shared_ptr<const MapSpec> map = nullptr;
  // Optional; must outlive the checkpoint.
  OpenProgress* progress = nullptr;
  // The maximum memory for blocks in Locate; at least kMinMemoryBytes. With
  // twice that, two threads share many items.
  uint64_t locate_memory_bytes = 2 * kMinMemoryBytes;
  // Checks the checksums of indices and headers: the CRC-32 of every pickle
  // that is read, here or by Locate, and a safetensors header's digest.
  // DataLoss names the file. If off, damaged ones are read as far as possible.
  bool check_index = true;
};

// For CheckStop: the activity while a checkpoint is opened.
inline constexpr absl::string_view kOpening = "the checkpoint was opened";

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_OPEN_OPTIONS_H_
