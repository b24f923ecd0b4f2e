// SPDX-License-Identifier: Apache-2.0
// Save: writes the tensors and objects that ranks hold in memory as a DCP
// checkpoint. Every rank calls it with the parts that it holds; if several hold
// the same part, one of them writes it. Blocking; any thread, but all ranks
// must call it.
#ifndef DCP_CHECKPOINT_SAVE_SAVE_H_
#define DCP_CHECKPOINT_SAVE_SAVE_H_

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save_state.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"

namespace dcp {

class SavePlanCache;

struct SaveOptions {
  bool overwrite = true;
  DirectMode direct = DirectMode::kAuto;
  // Payload memory: `memory_bytes` that the save allocates, or the caller's
  // `pool`, which may serve many saves, one after the other, so that only the
  // first one touches new pages. A pool with StagingBytes() holds the whole
  // state; through a smaller one, with at least kMinBlocks, the state is
  // streamed.
  uint64_t memory_bytes = kDefaultMemoryBytes;
  BlockPool* pool = nullptr;
  // The most bytes a second that this rank writes; 0: no limit. For storage
  // that others use. A pool that does not hold the whole state is staged at
  // this rate.
  uint64_t max_rate = 0;
  // If not null, the same cache for every save in a run. If the names, types,
  // shapes and boxes are those of the previous save, this save copies first and
  // communicates with the other ranks afterwards. Any rank may pass another
  // state at any time, or no cache.
  SavePlanCache* plan_cache = nullptr;
  // Called when every source byte has been copied and will not be needed again,
  // in the thread that calls Save: once if the save succeeds, at most once if
  // it fails afterwards, never after an error on this rank.
  std::function<void()> on_staged = {};
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
};

// The checkpoint at `path` appears whole or not at all. An error on one rank is
// returned on all. InvalidArgument when ranks disagree on a tensor's type or
// shape, or when their parts do not cover it; errors at the destination are
// those of ConvertCheckpoint. Pool and cache may be used again whatever the
// result.
absl::Status Save(FileSystem& fs, absl::string_view path,
                  const SaveState& state, Coordinator& coordinator,
                  const SaveOptions& options);

// How much memory holds everything that this rank may have to write from
// `state`: whole blocks, at least kMinMemoryBytes. Assumes that this rank
// writes all replicas that it holds.
uint64_t StagingBytes(const SaveState& state);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_SAVE_H_
