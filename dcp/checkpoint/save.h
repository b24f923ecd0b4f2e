// Save: writes tensors and objects that ranks hold in memory as a DCP
// checkpoint. Every rank calls it with what it holds; what several hold is
// written by one of them. Blocking; called from any thread, by all ranks.
#ifndef DCP_CHECKPOINT_SAVE_H_
#define DCP_CHECKPOINT_SAVE_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/coordinator.h"
#include "dcp/checkpoint/tensor_source.h"
#include "dcp/format/value.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class SavePlanCache;

// The part `box` of a tensor of global shape `shape`. A tensor of which a rank
// holds several parts is listed several times.
struct SaveTensor {
  std::string fqn;
  StatePath path = {};
  DType dtype = DType::kFloat32;
  Dims shape;
  Box box;
  TensorSource* source = nullptr;  // of the box, row-major; outlives the save
};

struct SaveObject {
  std::string fqn;
  StatePath path = {};
  Value value;  // without tensors
};

struct SaveState {
  std::vector<SaveTensor> tensors;
  std::vector<SaveObject> objects;
  // The error with which this rank comes instead of a state: of all then.
  absl::Status status;
};

struct SaveOptions {
  bool overwrite = true;
  DirectMode direct = DirectMode::kAuto;
  // Memory for payload: its own, of so many bytes; or the caller's, which may
  // be used for many saves, one after the other, so that its pages are there
  // but for the first. A pool of StagingBytes() takes the whole state, a
  // smaller one, down to kMinBlocks, lets it stream through.
  uint64_t memory_bytes = uint64_t{256} << 20;
  BlockPool* pool = nullptr;
  // Null: none. Otherwise the same one for every save of a run: then a save of
  // a state whose names, types, shapes and boxes are those of the one before
  // copies first and talks to the other ranks afterwards. Any rank may come
  // with another state at any time, or without a cache.
  SavePlanCache* plan_cache = nullptr;
  // Called when every byte of every source has been copied and will not be
  // asked for again, in the thread that calls Save: once if the save succeeds,
  // at most once if it fails afterwards, never after an error of this rank.
  std::function<void()> on_staged = {};
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
};

// The checkpoint at `path` appears whole or not at all. An error of one rank
// is returned on all. InvalidArgument when ranks disagree on a tensor's type
// or shape, or their parts do not make the whole of it; else as
// ConvertCheckpoint's destination. Pool and cache may be used again after any
// outcome.
absl::Status Save(FileSystem& fs, absl::string_view path,
                  const SaveState& state, Coordinator& coordinator,
                  const SaveOptions& options);

// How much memory holds all that this rank may have to write of `state`: whole
// blocks, kMinMemoryBytes at least. Replicas count as if this rank wrote all.
uint64_t StagingBytes(const SaveState& state);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_H_
