// SPDX-License-Identifier: Apache-2.0
// Load: fills boxes of tensors in memory from a checkpoint in any format,
// whatever mesh wrote it. Each rank asks for its own boxes; for another
// placement it asks for other boxes. A checkpoint that was opened through a
// mapping (OpenOptions::map, map_request.h) has another program's names and
// shapes; a load reads only the bytes that make up the boxes. Blocking; any
// thread.
#ifndef DCP_CHECKPOINT_LOAD_LOAD_H_
#define DCP_CHECKPOINT_LOAD_LOAD_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/load/tensor_sink.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct LoadTensor {
  std::string fqn;
  DType dtype = DType::kFloat32;  // the wanted type; converted if needed
  Dims shape;                     // global; must be the stored shape
  Box box;                        // the wanted part
  TensorSink* sink = nullptr;     // for the box, row-major; outlives the load
};

struct LoadOptions {
  uint64_t memory_bytes = kDefaultMemoryBytes;
  // Uses the caller's memory instead, at least kMinBlocks; may be used again.
  BlockPool* pool = nullptr;
  // Uses the caller's lane instead, for callers with many small loads.
  Lane* lane = nullptr;
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
  // Compares the bytes read with the CRC-32 that the checkpoint records, or
  // with the digest; DataLoss names the tensor. A chunk is checked if the
  // tensors together need all of it, whatever parts each needs; a chunk that is
  // read only in part (such as a rank's part) is not. A checkpoint's first such
  // load compares .metadata, too. Off by default, because it makes a load from
  // the page cache a fifth longer. See "What a load checks" in the README.
  bool verify = false;
  // First compares the elements that a mapping treats as equal in the
  // checkpoint, which may read more than the boxes need, in `memory_bytes` of
  // separate memory even with a pool. Off for callers that have called
  // CheckTies (read/tie_check.h), such as ranks that share it, or many loads
  // from one checkpoint.
  bool check_ties = true;
};

// Fills all sinks. Before anything is read, NotFound or InvalidArgument lists
// every name that is missing, belongs to an object, or has another shape or a
// type that cannot be converted; through a mapping, with the stored names. Also
// before any sink is filled, FailedPrecondition names two tensors that a
// mapping treats as equal and that differ. DataLoss when the checkpoint
// contradicts the recorded checksums.
absl::Status Load(FileSystem& fs, Checkpoint& checkpoint,
                  absl::Span<const LoadTensor> tensors,
                  const LoadOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LOAD_LOAD_H_
