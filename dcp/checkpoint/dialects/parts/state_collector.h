// SPDX-License-Identifier: Apache-2.0
// StateCollector: makes one state from many ranks' files: joins pieces of
// tensors, and keeps values that all ranks have once. For openers of
// checkpoints that consist of torch.save files. Used by one thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_STATE_COLLECTOR_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_STATE_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class StateCollector {
 public:
  // A rank's part of a tensor: any number of boxes.
  struct Part {
    DType dtype = DType::kFloat32;
    Dims shape;  // the whole tensor's
    std::vector<Box> boxes;
    std::vector<ChunkLocation> locations;  // parallel to boxes, all located
  };

  // Adds the part in the file of `rank` for the tensor at `path`. Files are
  // added in the ranks' order: among equal boxes, the first counts. DataLoss if
  // another rank gave another dtype or shape, or something else.
  absl::Status AddPart(const StatePath& path, int64_t rank, Part part);

  // Adds a tensor or an object that the rank has for itself. If it equals an
  // earlier rank's, it is kept once; otherwise it is called NAME@RANK. Tensors
  // are compared by their records' CRC-32. DataLoss if the optimizer has taken
  // another number of steps than on an earlier rank: then the ranks' files come
  // from different saves.
  absl::Status AddValue(const StatePath& path, int64_t rank,
                        CheckpointEntry entry);

  // The state, in the order in which names first came. DataLoss, with the name,
  // for a tensor that is not completely covered.
  absl::StatusOr<std::vector<CheckpointEntry>> Finish() &&;

 private:
  // One name: either parts, or values with their ranks.
  struct Collected {
    StatePath path;
    bool is_parts = false;
    Part parts;
    std::vector<std::pair<int64_t, CheckpointEntry>> values;
  };

  absl::StatusOr<Collected*> Find(const StatePath& path, bool is_parts);

  std::vector<Collected> all_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

// The location of a part in a tensor with one chunk: the elements in `box`,
// which is relative to the tensor.
ChunkLocation NarrowToBox(const TensorEntry& tensor, const Box& box);

// The part of a tensor with `shape` that is a range of row-major elements, from
// `begin` on. They are the `count` elements from `at` on in `vector`, a tensor
// with one dimension and one chunk.
StateCollector::Part FlatPart(const TensorEntry& vector, int64_t at,
                              int64_t count, const Dims& shape, int64_t begin);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_STATE_COLLECTOR_H_
