// SPDX-License-Identifier: Apache-2.0
// OpenOptions: how a checkpoint is opened, and how far opening has come.
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

// How far opening has come. Written by the threads that open and locate, read
// by any thread.
struct OpenProgress {
  // The items to locate, and those that are done; both 0 while the index is
  // read.
  std::atomic<uint64_t> num_items{0};
  std::atomic<uint64_t> num_items_located{0};
};

// How the checkpoint of a framework is read. The defaults need nothing; each
// field is about one dialect and ignored by others.
struct DialectOptions {
  // Reads the checkpoint as that dialect instead of recognising one.
  std::optional<Dialect> from = {};
  // ranks: the names of the files, such as "weights.{rank}.th"; empty: those
  // that are known.
  std::string rank_files = {};
  // ranks, FSDP1's flat parameters: the path of a JSON file that says which
  // parameters each consists of,
  // [{"flat": "layers.0._flat_param",
  //   "params": [{"name": "w", "shape": [4, 3]}, {"padding": 4}]}].
  std::string layout = {};
  // The same for flat parameters whose names and sizes, but not shapes, are
  // known: the path of a checkpoint of one file that has the shapes.
  std::string like = {};
  // ranks, a flat optimizer of FSDP1 next to a model that is not flat: the
  // modules that were wrapped, such as "model.layers.*".
  std::string flat_units = {};
  // deepspeed, stages 0 to 2: the weights in 16 bits that the model computed
  // with, instead of the optimizer's in float32.
  bool low_precision_weights = false;
  // ranks, deepspeed, accelerate: the optimizer got its parameters in the order
  // of the model, so numbers in its state become names where the shapes alone
  // do not tell them.
  bool optimizer_in_model_order = false;
  // megatron: "decoder.layers.S" of shape (L, ...) as L tensors
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
  // each rank (__{rank}.metadata): the rank whose index is read. Without it,
  // those of all ranks are read together.
  int64_t rank = -1;
  DialectOptions dialect = {};
  // Gives the tensors the names and shapes of another program. Optional.
  std::shared_ptr<const MapSpec> map = nullptr;
  // Optional; must outlive the checkpoint.
  OpenProgress* progress = nullptr;
  // The maximum memory for blocks in Locate; at least kMinMemoryBytes. With
  // twice that, two threads share many items.
  uint64_t locate_memory_bytes = 2 * kMinMemoryBytes;
  // Checks the checksums of indices and headers: the CRC-32 of every pickle
  // that is read, here or by Locate, and the digest of a safetensors header.
  // DataLoss names the file. If off, damaged ones are read as far as possible.
  bool check_index = true;
};

// For CheckStop: what was going on while a checkpoint is opened.
inline constexpr absl::string_view kOpening = "the checkpoint was opened";

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_OPEN_OPTIONS_H_
