// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/load/load.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/quantization.h"
#include "dcp/checkpoint/output/mapped_payloads.h"
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "dcp/checkpoint/read/window_planner.h"
#include "dcp/checkpoint/write/image_batches.h"

namespace dcp {
namespace {

// How much one batch reads directly to the destination: a few reads of maximum
// length, so that planning the windows together is worthwhile.
constexpr uint64_t kDirectBatchReads = 8;

// The most blocks if adjacent elements are scattered over a stored tensor: 1
// GiB, which is several of the largest matrices in today's models. See [Note:
// scattered] in write/mapped_payloads.h.
constexpr uint64_t kMaxDirectBatchBlocks = 256;

class Loader {
 public:
  Loader(FileSystem& fs, Checkpoint& checkpoint,
         absl::Span<const LoadTensor> tensors, const LoadOptions& options)
      : fs_(fs),
        checkpoint_(checkpoint),
        tensors_(tensors),
        options_(options) {}

  absl::Status Run() {
    DCP_RETURN_IF_ERROR(FindAll());
    if (options_.check_ties) {
      DCP_RETURN_IF_ERROR(CheckTies(
          fs_, checkpoint_,
          {.memory_bytes = options_.memory_bytes, .stop = options_.stop}));
    }
    DCP_RETURN_IF_ERROR(checkpoint_.Locate(entries_, options_.stop));
    if (!options_.verify) return Move();
    DCP_RETURN_IF_ERROR(checkpoint_.CheckRecordedIndex());
    DCP_ASSIGN_OR_RETURN(check_, SourceCheck::Make(fs_, checkpoint_, entries_));
    planner_ = WindowPlanner(check_.get());
    DCP_RETURN_IF_ERROR(Move());
    return check_->Finish({.memory_bytes = MemoryBytes(),
                           .stop = options_.stop,
                           .stats = options_.stats},
                          SourceCheck::Missing::kNothing);
  }

 private:
  absl::Status Move() {
    const absl::Status read = RunReads(
        fs_,
        {.memory_bytes = MemoryBytes(),
         .block_bytes = BlockBytes(),
         .pool = options_.pool,
         .lane = options_.lane,
         .uses_blocks = !AllDirect(),
         .blocks_per_batch = BlocksForScattered(scattered_bytes_, BlockBytes()),
         .stop = options_.stop,
         .stats = options_.stats},
        [this](Batch& batch) { return NextBatch(batch); },
        [this](FileHandle handle) {
          return checkpoint_.files().Describe(handle);
        });
    // A file that was cut while it was read has changed; it is not damaged.
    if (read.ok() || absl::IsDataLoss(read)) {
      DCP_RETURN_IF_ERROR(checkpoint_.files().CheckUnchanged(handles_));
    }
    return read;
  }

  // If nothing is copied through blocks, as many blocks as reads in flight
  // suffice: each block is mapped and locked before it is used.
  uint64_t MemoryBytes() const {
    if (!AllDirect()) return options_.memory_bytes;
    return std::min(options_.memory_bytes, kQueueDepth * BlockBytes());
  }

  uint64_t BlockBytes() const {
    if (options_.lane != nullptr) return options_.lane->pool.block_bytes();
    if (options_.pool != nullptr) return options_.pool->block_bytes();
    return ReadBlockBytes(checkpoint_.files().traits(), options_.memory_bytes);
  }

  absl::Status FindAll() {
    std::vector<std::string> missing;
    std::vector<std::string> unfit;
    for (const LoadTensor& tensor : tensors_) {
      const std::optional<uint32_t> entry = checkpoint_.Find(tensor.fqn);
      if (!entry.has_value()) {
        missing.push_back(tensor.fqn);
        continue;
      }
      entries_.push_back(*entry);
      const TensorEntry* stored = checkpoint_.entries()[*entry].tensor();
      std::string problem = FindProblem(tensor, stored);
      if (problem.empty()) {
        NoteScattered(*stored, tensor.box);
        continue;
      }
      const std::string made_of = checkpoint_.SourceNames(*entry);
      if (!made_of.empty())
        absl::StrAppend(&problem, " (made of ", made_of, ")");
      unfit.push_back(std::move(problem));
    }
    if (!missing.empty()) {
      return absl::NotFoundError(absl::StrCat(checkpoint_.path(), " lacks ",
                                              absl::StrJoin(missing, ", "),
                                              checkpoint_.NamesMade()));
    }
    if (!unfit.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint_.path(), ": ", absl::StrJoin(unfit, "; ")));
    }
    return absl::OkStatus();
  }

  static std::string FindProblem(const LoadTensor& wanted,
                                 const TensorEntry* stored) {
    if (stored == nullptr) return absl::StrCat(wanted.fqn, " is not a tensor");
    if (stored->shape != wanted.shape) {
      return absl::StrCat(wanted.fqn, " is stored as ",
                          ShapeToString(stored->shape), ", but requested as ",
                          ShapeToString(wanted.shape));
    }
    if (!Contains(WholeBox(wanted.shape), wanted.box)) {
      return absl::StrCat(wanted.fqn, ": ", ToString(wanted.box),
                          " is not inside shape ", ShapeToString(wanted.shape));
    }
    const std::string problem = WhyNotCast(*stored, wanted.dtype);
    return problem.empty() ? "" : absl::StrCat(wanted.fqn, " ", problem);
  }

  void NoteScattered(const TensorEntry& stored, const Box& box) {
    if (stored.mapped == nullptr || Volume(box.sizes) == 0) return;
    scattered_bytes_ =
        std::max(scattered_bytes_, ScatteredBytes(*stored.mapped, box));
  }

  struct Piece {
    size_t tensor;
    uint32_t block;
    uint64_t position;
    uint64_t offset;  // in the tensor's payload
    uint64_t length;
  };

  bool AllDirect() const {
    return std::all_of(tensors_.begin(), tensors_.end(),
                       [](const LoadTensor& tensor) {
                         return !tensor.sink->DirectSpan().empty() ||
                                Volume(tensor.box.sizes) == 0;
                       });
  }

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    // Owned by this batch's callback.
    auto pieces = std::make_unique<std::vector<Piece>>();
    Room room{.block_bytes = BlockBytes(), .direct_bytes = DirectBytes()};
    bool planned = false;
    while (planner_.num_nest_extents() < kMaxNestExtentsPerBatch &&
           PlanNext(room, batch, *pieces)) {
      planned = true;
    }
    if (!planned) return false;
    DCP_RETURN_IF_ERROR(planner_.Finish(batch, room.block_bytes));
    for (const PlannedRead& read : batch.reads) {
      handles_.insert(read.file.handle);
    }
    batch.on_filled = [this,
                       pieces = std::move(pieces)](std::vector<Block>& blocks) {
      return Place(*pieces, blocks);
    };
    return true;
  }

  // The most bytes that a batch may fill directly.
  uint64_t DirectBytes() const {
    const uint64_t num_blocks =
        std::clamp(BlocksForScattered(scattered_bytes_, BlockBytes()),
                   kDirectBatchReads, kMaxDirectBatchBlocks);
    return num_blocks * MaxReadBytes(BlockBytes());
  }

  // The room left in a batch.
  struct Room {
    uint64_t block_bytes;
    uint64_t direct_bytes;
    uint32_t block = 0;  // the block that is being filled
    uint64_t position = 0;
  };

  // Plans a stretch of the next tensor; false when all are planned or the batch
  // is full.
  bool PlanNext(Room& room, Batch& batch, std::vector<Piece>& pieces) {
    while (next_tensor_ < tensors_.size() &&
           next_element_ == NumElements(tensors_[next_tensor_])) {
      ++next_tensor_;
      next_element_ = 0;
    }
    if (next_tensor_ == tensors_.size()) return false;
    const LoadTensor& tensor = tensors_[next_tensor_];
    const uint64_t element = ElementSize(tensor.dtype);
    const uint64_t left = NumElements(tensor) - next_element_;
    const MutableByteSpan direct = tensor.sink->DirectSpan();
    if (!direct.empty()) {
      DCP_CHECK(direct.size() == NumElements(tensor) * element, tensor.fqn,
                " size=", direct.size());
      uint64_t num = std::min(left, room.direct_bytes / element);
      // Works in steps: the batch may be closed after each.
      if (checkpoint_.mapped() != nullptr) {
        num = std::min(num, room.block_bytes / element);
      }
      room.direct_bytes -= num * element;
      return Plan(tensor, num, direct.data() + next_element_ * element);
    }
    if (room.block_bytes - room.position < element) {
      ++room.block;
      room.position = 0;
    }
    if (room.block >= batch.blocks.size()) return false;
    const uint64_t num =
        std::min(left, (room.block_bytes - room.position) / element);
    pieces.push_back({next_tensor_, room.block, room.position,
                      next_element_ * element, num * element});
    uint8_t* const dst = batch.blocks[room.block].data() + room.position;
    room.position += num * element;
    return Plan(tensor, num, dst);
  }

  // Plans to put the next `num` elements of the next tensor at `dst`.
  bool Plan(const LoadTensor& tensor, uint64_t num, uint8_t* dst) {
    const TensorEntry& stored =
        *checkpoint_.entries()[entries_[next_tensor_]].tensor();
    planner_.Add(stored, checkpoint_.files(), tensor.box, tensor.dtype,
                 next_element_, num, dst);
    next_element_ += num;
    return num > 0;
  }

  static uint64_t NumElements(const LoadTensor& tensor) {
    return static_cast<uint64_t>(Volume(tensor.box.sizes));
  }

  absl::Status Place(const std::vector<Piece>& pieces,
                     std::vector<Block>& blocks) {
    absl::Status status;
    size_t num_begun = 0;
    while (status.ok() && num_begun < pieces.size()) {
      const Piece& piece = pieces[num_begun++];
      status = tensors_[piece.tensor].sink->Place(
          piece.offset,
          ByteSpan(blocks[piece.block].data() + piece.position, piece.length));
    }
    // After this the blocks go back to the pool: nothing may still read them,
    // even after an error.
    for (size_t i = 0; i < num_begun; ++i) {
      status.Update(tensors_[pieces[i].tensor].sink->Flush());
    }
    return status;
  }

  FileSystem& fs_;
  Checkpoint& checkpoint_;
  const absl::Span<const LoadTensor> tensors_;
  const LoadOptions& options_;
  std::vector<uint32_t> entries_;            // parallel to tensors_
  uint64_t scattered_bytes_ = 0;             // the largest of all tensors
  absl::flat_hash_set<FileHandle> handles_;  // the files that are read
  std::unique_ptr<SourceCheck> check_;       // optional
  WindowPlanner planner_;
  size_t next_tensor_ = 0;
  uint64_t next_element_ = 0;
};

}  // namespace

absl::Status Load(FileSystem& fs, Checkpoint& checkpoint,
                  absl::Span<const LoadTensor> tensors,
                  const LoadOptions& options) {
  return Loader(fs, checkpoint, tensors, options).Run();
}

}  // namespace dcp
