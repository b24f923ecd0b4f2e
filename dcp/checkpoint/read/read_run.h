// SPDX-License-Identifier: Apache-2.0
// RunReads: the one way in which this folder runs the pipeline to read only:
// for a load, a comparison, and file ranges. Blocking; any thread.
#ifndef DCP_CHECKPOINT_READ_READ_RUN_H_
#define DCP_CHECKPOINT_READ_READ_RUN_H_

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "dcp/base/error_side.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"

namespace dcp {

struct ReadRunOptions {
  uint64_t memory_bytes = 0;  // at least kMinBlocks of `block_bytes`
  uint64_t block_bytes = kBlockBytes;
  // Either replaces both sizes above: the caller's memory, or the caller's
  // lane.
  BlockPool* pool = nullptr;
  Lane* lane = nullptr;
  // If off, batches have no blocks: every read goes directly to the
  // destination.
  bool uses_blocks = true;
  // The least blocks in a batch, if there is memory for them. 0: any number.
  uint64_t blocks_per_batch = 0;
  // The side for errors in the batches' own steps; read errors are the
  // source's.
  ErrorSide side = ErrorSide::kNone;
  std::stop_token stop = {};
  TransferStats* stats = nullptr;  // optional
};

// The block size for reads from a storage: the size that suits it, unless
// `memory_bytes`, at least kMinMemoryBytes, is too little for them.
uint64_t ReadBlockBytes(const FileSystemTraits& traits, uint64_t memory_bytes);

// The largest gap between needed ranges that is read along, so that one request
// serves both.
uint64_t ReadGapBytes(const FileSystemTraits& traits);

// How many of a lane's `num_blocks` the pipeline leaves for each of two
// batches.
uint64_t MostBlocksPerBatch(uint64_t num_blocks);

// Runs the batches from `next`, which have no writes, on one lane. `describe`
// names the files. Errors are those from RunPipeline and RunLanes.
absl::Status RunReads(FileSystem& fs, const ReadRunOptions& options,
                      NextBatch next,
                      absl::FunctionRef<std::string(FileHandle)> describe);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_READ_RUN_H_
