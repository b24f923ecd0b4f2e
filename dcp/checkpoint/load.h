// Load: fills boxes of tensors in memory from a checkpoint of any format,
// whatever mesh wrote it. Each rank asks for its own boxes; another placement
// is just other boxes. Blocking; any thread.
#ifndef DCP_CHECKPOINT_LOAD_H_
#define DCP_CHECKPOINT_LOAD_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/tensor_sink.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct LoadTensor {
  std::string fqn;
  DType dtype = DType::kFloat32;  // wanted; converted if it is another
  Dims shape;                     // global; must be the stored one
  Box box;                        // the wanted part
  TensorSink* sink = nullptr;     // of the box, row-major; outlives the load
};

struct LoadOptions {
  uint64_t memory_bytes = uint64_t{256} << 20;
  // The caller's memory instead, of kMinBlocks at least; may be used again.
  BlockPool* pool = nullptr;
  // The caller's lane instead, for one who loads often and little.
  Lane* lane = nullptr;
  std::stop_token stop = {};
  TransferStats* stats = nullptr;
  // Compares what is read with the CRC-32 that the checkpoint has of it, or
  // with its digest: DataLoss names the tensor. A chunk that several of the
  // tensors need together is checked, whatever parts they are; what is read in
  // part only (a rank's part of a chunk) is not.
  // Off unless asked for: it makes a load that the page cache serves a fifth
  // longer. See "What a load checks" in the README.
  bool verify = false;
};

// Fills all sinks. NotFound and InvalidArgument list every name that is
// missing, an object, or of another shape or unconvertible type, before
// anything is read. DataLoss when the checkpoint contradicts its checksums.
absl::Status Load(FileSystem& fs, Checkpoint& checkpoint,
                  absl::Span<const LoadTensor> tensors,
                  const LoadOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LOAD_H_
