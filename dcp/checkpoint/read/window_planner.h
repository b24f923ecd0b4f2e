// SPDX-License-Identifier: Apache-2.0
// WindowPlanner: turns windows ("these elements of that tensor, here in
// memory") into a batch's reads, for any stored chunks, layouts and types. All
// windows in a batch are planned together, so that a byte that several need is
// read once. Used by one thread.
#ifndef DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_
#define DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/lens/block_encoder.h"
#include "dcp/checkpoint/lens/lens_pass.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/read/window_scatter.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

class WindowPlanner {
 public:
  // `check`, which must outlive the batches, sees the reads from its
  // checkpoint.
  explicit WindowPlanner(SourceCheck* check = nullptr) : check_(check) {
    if (check != nullptr) FirstFileNumber(check->files());
  }

  // From now on, tells the check which bytes it would see as soon as a batch is
  // planned; for batches that never run.
  void ReportPlans() { reports_plans_ = true; }

  // Requests that elements [first, first + num_elements) in the row-major image
  // of `box`, a box in `tensor`, be written to `dst` as type `to`. `dst` is
  // valid from now on while the batch runs. `tensor`, or the tensors it is
  // mapped from, are located and in `files`; all must outlive the planner. If
  // `num_beyond` is given, it must outlive the batch; the count from
  // TransformElements is added to it.
  void Add(const TensorEntry& tensor, SourceFiles& files, const Box& box,
           DType to, uint64_t first, uint64_t num_elements, uint8_t* dst,
           uint64_t* num_beyond = nullptr);

  // Gives `batch`, which stays in place, the reads for all windows added since
  // the last call, and an on_read that puts the elements in place. The
  // transfer's blocks have `block_bytes`, even if this batch's blocks have
  // none. InvalidArgument when a mapped tensor's pieces do not make all
  // elements in a window.
  absl::Status Finish(Batch& batch, uint64_t block_bytes);

  // How many file stretches the nests in the windows since the last Finish
  // extend over: a measure for their plan's memory.
  uint64_t num_nest_extents() const { return num_nest_extents_; }

 private:
  // A window in a mapped tensor, and the plan for it. See [Note: joined
  // windows] in the source file.
  struct MappedWindow {
    const MappedTensor* mapped;
    uint32_t file_base;
    Window window;
    WindowDestination destination;
    // A nest's tag is an index into these.
    std::vector<WindowDestination> destinations = {};
    std::vector<NestRun> nests = {};
    uint64_t num_extents = 0;
    uint64_t num_ready = 0;  // elements
  };
  struct Plan {
    WindowScatter scatter;
    // Windows to compute when all reads are in place, and how many reads are
    // not yet.
    std::vector<LensedWindow> lensed;
    size_t num_reads_left = 0;
    // Windows to encode before anything is read.
    std::vector<EncodedWindow> encoded;
  };

  void AddChunk(const TensorEntry& tensor, uint32_t file_base, size_t chunk,
                const Window& window, const Box& overlap,
                const WindowDestination& destination);
  void AddMapped(MappedWindow added);
  bool Extend(MappedWindow& before, const MappedWindow& added);
  void PlanMapped(MappedWindow& to);
  void Close(MappedWindow window);
  void AddPart(const TensorEntry& source, const StridedPiece& part,
               const WindowDestination& destination, MappedWindow& to);
  // False, with an error in status_, if a type cannot hold the computed
  // elements.
  bool CheckHolds(const LensedTensor& lensed, DType type);
  void AddLensed(const LensedTensor& lensed, const StridedPiece& part,
                 MappedWindow& to);
  void AddEncoded(const LensedTensor& lensed, MappedWindow& to);
  void AddZeros(const StridedPiece& piece, MappedWindow& to) const;
  const ChunkIndex& FindOrMakeIndex(const TensorEntry& tensor);
  const TensorEntry* FindOrMakeCodeBytes(const LensedTensor& lensed);
  uint32_t FirstFileNumber(SourceFiles& files);
  static absl::Status ReadTable(FileSystem& fs, const LensTable& table,
                                const Box& box, DType as, SourceCheck* check,
                                uint8_t* dst, uint64_t& num_bytes_read);
  static absl::Status ComputeLensed(const Plan& plan, SourceCheck* check,
                                    uint64_t& num_bytes_read);
  absl::Status Encode(std::vector<EncodedWindow> encoded,
                      uint64_t& num_bytes_read);
  absl::Status ReportTableReads(const LensTable& table, const Box& box);

  SourceCheck* check_;
  bool reports_plans_ = false;
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
  std::deque<MappedWindow> open_;  // to which adjacent ones may still be joined
  uint64_t num_nest_extents_ = 0;  // includes open windows
  absl::Status status_;            // about the windows since the last Finish
  // CopyRun::file counts through all sources' files, in this order.
  std::vector<SourceFiles*> sources_;
  absl::flat_hash_map<const TensorEntry*, std::unique_ptr<ChunkIndex>> indices_;
  // The codes for tensors that have two in a byte.
  absl::flat_hash_map<const LensedTensor*, std::unique_ptr<const TensorEntry>>
      code_bytes_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_
