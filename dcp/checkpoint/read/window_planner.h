// WindowPlanner: turns windows ("these elements of that tensor, here in
// memory") into the reads of a batch, whatever chunks, layouts and types are
// stored. All windows of a batch are planned together, so that a byte that
// several of them need is read once. Used by one thread.
#ifndef DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_
#define DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/source_files.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/copy_run.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/element.h"

namespace dcp {

class WindowPlanner {
 public:
  // `check`, which must outlive the batches, sees the reads of its checkpoint.
  explicit WindowPlanner(SourceCheck* check = nullptr) : check_(check) {
    if (check != nullptr) BaseOf(check->files());
  }

  // From now on, tells the check what it would see as soon as a batch is
  // planned; for batches that never run.
  void TellOfPlans() { tells_of_plans_ = true; }

  // Requests that elements [first, first + num_elements) of the row-major image
  // of `box`, a box of `tensor`, be written to `dst` as type `to`. `dst` is
  // valid while the batch runs. `tensor` is located; it and `files` must
  // outlive the planner. If `num_beyond` is given, it must outlive the batch,
  // and what TransformElements counts is added to it.
  void Add(const TensorEntry& tensor, SourceFiles& files, const Box& box,
           DType to, uint64_t first, uint64_t num_elements, uint8_t* dst,
           uint64_t* num_beyond = nullptr);

  // Gives `batch` the reads of all windows added since the last call, and an
  // on_read that puts the elements in place. The blocks of the transfer have
  // `block_bytes`, even if those of this batch have none.
  absl::Status Finish(Batch& batch, uint64_t block_bytes);

 private:
  // Where a window's elements go, and how they are converted.
  struct Destination {
    uint8_t* dst;
    ElementTransform transform;
    uint64_t* num_beyond;  // optional
  };
  struct Plan {
    std::vector<Destination> destinations;
    std::vector<CopyRun> runs;  // each run's tag is the index of a destination
    ReadSchedule schedule;
  };

  void AddChunk(const TensorEntry& tensor, uint32_t file_base, size_t chunk,
                const Window& window, const Box& overlap,
                const Destination& destination);
  const ChunkIndex& IndexOf(const TensorEntry& tensor);
  uint32_t BaseOf(SourceFiles& files);
  static void Scatter(const Plan& plan, const ReadRange& range, ByteSpan data);

  SourceCheck* check_;
  bool tells_of_plans_ = false;
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
  // CopyRun::file counts through the files of all sources, in this order.
  std::vector<SourceFiles*> sources_;
  absl::flat_hash_map<const TensorEntry*, std::unique_ptr<ChunkIndex>> indices_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_
