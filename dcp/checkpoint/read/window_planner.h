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
#include "dcp/checkpoint/open/lensed_tensor.h"
#include "dcp/checkpoint/open/mapped_tensor.h"
#include "dcp/checkpoint/open/source_files.h"
#include "dcp/checkpoint/read/block_encoder.h"
#include "dcp/checkpoint/read/lens_pass.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/copy_run.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/plan/strided/strided_piece.h"
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
  // valid from now on while the batch runs. `tensor`, or what it is mapped
  // from, is located and in `files`; all must outlive the planner. If
  // `num_beyond` is given, it must outlive the batch, and what
  // TransformElements counts is added to it.
  void Add(const TensorEntry& tensor, SourceFiles& files, const Box& box,
           DType to, uint64_t first, uint64_t num_elements, uint8_t* dst,
           uint64_t* num_beyond = nullptr);

  // Gives `batch`, which stays where it is, the reads of all windows added
  // since the last call, and an on_read that puts the elements in place. The
  // blocks of the transfer have `block_bytes`, even if those of this batch have
  // none. InvalidArgument when the pieces of a mapped tensor do not make what
  // is in a window.
  absl::Status Finish(Batch& batch, uint64_t block_bytes);

  // How many stretches of files the nests of the windows added since the last
  // Finish extend over: a measure of the memory that their plan takes.
  uint64_t num_nest_extents() const { return num_nest_extents_; }

 private:
  // Where a window's elements go, and how they are converted.
  struct Destination {
    uint8_t* dst;
    ElementTransform transform;
    uint64_t* num_beyond;  // optional

    friend bool operator==(const Destination&, const Destination&) = default;
  };
  struct Plan {
    std::vector<Destination> destinations;
    // The tag of a run is the index of a destination.
    std::vector<CopyRun> runs;
    std::vector<NestRun> nests;  // numbered after the runs
    ReadSchedule schedule;
    // What is computed when all reads are in place, and how many are not yet.
    std::vector<LensedWindow> lensed;
    size_t num_reads_left = 0;
    // What is encoded before anything is read.
    std::vector<EncodedWindow> encoded;
  };

  void AddChunk(const TensorEntry& tensor, uint32_t file_base, size_t chunk,
                const Window& window, const Box& overlap,
                const Destination& destination);
  void AddMapped(const MappedTensor& mapped, uint32_t file_base,
                 const Window& window, const Destination& destination);
  void AddPart(const TensorEntry& source, uint32_t file_base,
               const StridedPiece& part, const Window& window,
               const Destination& destination);
  // False, with an error in status_, if a type cannot hold what is computed.
  bool CheckHolds(const LensedTensor& lensed, DType type);
  void AddLensed(const LensedTensor& lensed, uint32_t file_base,
                 const StridedPiece& part, const Window& window,
                 const Destination& destination);
  void AddEncoded(const LensedTensor& lensed, const Window& window,
                  const Destination& destination);
  void AddZeros(const StridedPiece& piece, const Window& window,
                const Destination& destination);
  uint32_t TagFor(const ChunkLocation& location,
                  const Destination& destination);
  const ChunkIndex& IndexOf(const TensorEntry& tensor);
  const TensorEntry* BytesOf(const LensedTensor& lensed);
  uint32_t BaseOf(SourceFiles& files);
  static absl::Status ReadTable(FileSystem& fs, const LensTable& table,
                                const Box& box, DType as, SourceCheck* check,
                                uint8_t* dst, uint64_t& num_bytes_read);
  static absl::Status ComputeLensed(const Plan& plan, SourceCheck* check,
                                    uint64_t& num_bytes_read);
  absl::Status Encode(std::vector<EncodedWindow> encoded,
                      uint64_t& num_bytes_read);
  absl::Status TellOf(const LensTable& table, const Box& box);
  static void Scatter(const Plan& plan, const ReadRange& range, ByteSpan data);
  static void ScatterNest(const Plan& plan, const NestRun& run,
                          const ReadRange& range, ByteSpan data);

  SourceCheck* check_;
  bool tells_of_plans_ = false;
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
  uint64_t num_nest_extents_ = 0;
  // Elements of the window that is being added which need no run.
  uint64_t num_ready_ = 0;
  absl::Status status_;  // of the windows added since the last Finish
  // CopyRun::file counts through the files of all sources, in this order.
  std::vector<SourceFiles*> sources_;
  absl::flat_hash_map<const TensorEntry*, std::unique_ptr<ChunkIndex>> indices_;
  // The codes of tensors that have two in a byte.
  absl::flat_hash_map<const LensedTensor*, std::unique_ptr<const TensorEntry>>
      bytes_of_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_READ_WINDOW_PLANNER_H_
