#include "dcp/checkpoint/read/window_planner.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

// How many indices are kept. Output moves through the tensors in order, so
// those of earlier tensors are no longer useful.
constexpr size_t kMaxIndices = 256;

// So many chunks may be compared with each part of a mapped tensor.
constexpr size_t kFewChunks = 64;

// Where the elements of a located chunk are, in the files of all sources.
ChunkView ViewOf(const TensorEntry& tensor, uint32_t file_base, size_t chunk) {
  const ChunkLocation& location = tensor.locations[chunk];
  DCP_CHECK(location.located);
  return {.box = tensor.boxes[chunk],
          .strides = location.strides.empty()
                         ? RowMajorStrides(tensor.boxes[chunk].sizes)
                         : location.strides,
          .file = file_base + location.item.file,
          .offset = location.payload_offset,
          .element_bytes = static_cast<uint32_t>(ElementSize(tensor.dtype))};
}

}  // namespace

void WindowPlanner::Add(const TensorEntry& tensor, SourceFiles& files,
                        const Box& box, DType to, uint64_t first,
                        uint64_t num_elements, uint8_t* dst,
                        uint64_t* num_beyond) {
  if (num_elements == 0) return;
  const uint32_t file_base = BaseOf(files);
  const Window window{.box = box,
                      .first = first,
                      .num_elements = num_elements,
                      .element_bytes = static_cast<uint32_t>(ElementSize(to))};
  const Destination destination{
      .dst = dst,
      .transform = {.from = tensor.dtype, .to = to},
      .num_beyond = tensor.dtype == to ? nullptr : num_beyond};
  if (tensor.mapped != nullptr) {
    AddMapped(*tensor.mapped, file_base, window, destination);
    return;
  }
  const Box bounds = WindowBounds(box, first, num_elements);
  if (tensor.boxes.size() == 1) {
    const std::optional<Box> overlap = Intersect(bounds, tensor.boxes[0]);
    DCP_CHECK(overlap.has_value(), ToString(bounds));
    AddChunk(tensor, file_base, 0, window, *overlap, destination);
    return;
  }
  IndexOf(tensor).ForEachOverlap(bounds, [&](size_t chunk, const Box& overlap) {
    AddChunk(tensor, file_base, chunk, window, overlap, destination);
  });
}

void WindowPlanner::AddChunk(const TensorEntry& tensor, uint32_t file_base,
                             size_t chunk, const Window& window,
                             const Box& overlap,
                             const Destination& destination) {
  Window tagged = window;
  tagged.tag = TagFor(tensor.locations[chunk], destination);
  AppendCopyRuns(tagged, ViewOf(tensor, file_base, chunk), overlap,
                 plan_->runs);
}

void WindowPlanner::AddMapped(const MappedTensor& mapped, uint32_t file_base,
                              const Window& window,
                              const Destination& destination) {
  const size_t first = plan_->nests.size();
  num_zeros_ = 0;
  const Box bounds =
      WindowBounds(window.box, window.first, window.num_elements);
  mapped.ForEachPieceNear(bounds, [&](const StridedPiece& piece) {
    const TensorEntry* source = mapped.SourceOf(piece);
    if (source == nullptr) {
      AddZeros(piece, window, destination);
      return;
    }
    Clip(piece, PieceSide::kDst, bounds, [&](const StridedPiece& part) {
      AddPart(*source, file_base, part, window, destination);
    });
  });
  uint64_t num_made = num_zeros_;
  for (size_t i = first; i < plan_->nests.size(); ++i) {
    num_made += NumElements(plan_->nests[i]);
    num_nest_extents_ += NumExtents(plan_->nests[i], kReadGapBytes);
  }
  if (num_made != window.num_elements) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(
        "the pieces of a mapped tensor make ", num_made, " of the ",
        window.num_elements, " elements from ", window.first, " of ",
        ToString(window.box), " on: each must be made once")));
  }
}

void WindowPlanner::AddPart(const TensorEntry& source, uint32_t file_base,
                            const StridedPiece& part, const Window& window,
                            const Destination& destination) {
  const auto add = [&](const StridedPiece& piece, size_t chunk) {
    Window tagged = window;
    tagged.tag = TagFor(source.locations[chunk], destination);
    AppendNestRuns(tagged, ViewOf(source, file_base, chunk), piece,
                   plan_->nests);
  };
  if (source.boxes.size() == 1) {
    add(part, 0);
    return;
  }
  const ChunkIndex& index = IndexOf(source);
  const auto add_near = [&](const StridedPiece& piece) {
    index.ForEachOverlap(BoundsOf(piece, PieceSide::kSrc),
                         [&](size_t chunk, const Box&) { add(piece, chunk); });
  };
  if (source.boxes.size() <= kFewChunks) {
    add_near(part);
  } else {
    ForEachDensePart(part, add_near);
  }
}

// Zeros need no read, so they are written at once.
void WindowPlanner::AddZeros(const StridedPiece& piece, const Window& window,
                             const Destination& destination) {
  static constexpr uint8_t kZeros[16] = {};
  std::vector<NestRun> runs;
  AppendNestRuns(
      window, {.box = {}, .strides = {}, .element_bytes = window.element_bytes},
      piece, runs);
  for (const NestRun& run : runs) {
    num_zeros_ += NumElements(run);
    if (tells_of_plans_) continue;
    CopyStrided({kZeros, destination.dst + run.dst},
                run.unit * run.dst_element_bytes, run.loops);
  }
}

// The number of the destination with what a chunk's elements require. Those of
// one window are mostly alike and share it.
uint32_t WindowPlanner::TagFor(const ChunkLocation& location,
                               const Destination& destination) {
  Destination wanted = destination;
  wanted.transform.swap_bytes = location.swap_bytes;
  wanted.transform.conj = location.conj;
  wanted.transform.neg = location.neg;
  std::vector<Destination>& all = plan_->destinations;
  if (all.empty() || all.back() != wanted) all.push_back(wanted);
  return static_cast<uint32_t>(all.size() - 1);
}

const ChunkIndex& WindowPlanner::IndexOf(const TensorEntry& tensor) {
  auto it = indices_.find(&tensor);
  if (it == indices_.end()) {
    if (indices_.size() >= kMaxIndices) indices_.clear();
    it = indices_.emplace(&tensor, std::make_unique<ChunkIndex>(tensor.boxes))
             .first;
  }
  return *it->second;
}

uint32_t WindowPlanner::BaseOf(SourceFiles& files) {
  uint32_t base = 0;
  for (SourceFiles* source : sources_) {
    if (source == &files) return base;
    base += static_cast<uint32_t>(source->names().size());
  }
  sources_.push_back(&files);
  return base;
}

absl::Status WindowPlanner::Finish(Batch& batch, uint64_t block_bytes) {
  std::unique_ptr<Plan> plan = std::exchange(plan_, std::make_unique<Plan>());
  num_nest_extents_ = 0;
  DCP_RETURN_IF_ERROR(std::exchange(status_, absl::OkStatus()));
  if (plan->runs.empty() && plan->nests.empty()) return absl::OkStatus();
  plan->schedule = ScheduleReads(
      plan->runs, plan->nests,
      {MaxReadBytes(block_bytes), ReadGapBytes(sources_[0]->traits())});
  for (const ReadRange& range : plan->schedule.ranges) {
    uint32_t file = range.file;
    size_t source = 0;
    while (file >= sources_[source]->names().size()) {
      file -= static_cast<uint32_t>(sources_[source]->names().size());
      ++source;
    }
    absl::StatusOr<File> opened = sources_[source]->Get(file);
    if (!opened.ok()) return WithSide(opened.status(), ErrorSide::kSource);
    batch.reads.push_back({*opened, range.offset, range.length});
    // The files of the check's checkpoint come first.
    if (check_ != nullptr && tells_of_plans_ &&
        range.file < check_->files().names().size()) {
      check_->WouldSee(range.file, range.offset, range.length);
    }
  }
  batch.on_read = [check = check_, plan = std::move(plan)](size_t read,
                                                           ByteSpan data) {
    const ReadRange& range = plan->schedule.ranges[read];
    Scatter(*plan, range, data);
    // The files of the check's checkpoint come first.
    if (check == nullptr || range.file >= check->files().names().size()) {
      return absl::OkStatus();
    }
    // Includes the margin behind the range, in which an element may end.
    return check->Saw(range.file, range.offset, data);
  };
  return absl::OkStatus();
}

void WindowPlanner::Scatter(const Plan& plan, const ReadRange& range,
                            ByteSpan data) {
  for (uint32_t i = 0; i < range.num_runs; ++i) {
    const uint32_t number = plan.schedule.run_indices[range.first_run + i];
    if (number >= plan.runs.size()) {
      ScatterNest(plan, plan.nests[number - plan.runs.size()], range, data);
      continue;
    }
    const CopyRun& run = plan.runs[number];
    const Destination& to = plan.destinations[run.tag];
    if (to.transform.is_copy()) {
      ApplyRun(run, range.offset, range.length, data,
               [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                 std::memcpy(to.dst + dst, src, n * run.dst_element_bytes);
               });
    } else {
      ApplyRun(run, range.offset, range.length, data,
               [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                 TransformElements(to.transform, src, to.dst + dst, n,
                                   to.num_beyond);
               });
    }
  }
}

void WindowPlanner::ScatterNest(const Plan& plan, const NestRun& run,
                                const ReadRange& range, ByteSpan data) {
  const Destination& to = plan.destinations[run.tag];
  ApplyRun(run, range.offset, range.length, data,
           [&](const NestRun& part, const uint8_t* src) {
             const CopyEnds ends{src, to.dst + part.dst};
             if (to.transform.is_copy()) {
               CopyStrided(ends, part.unit * part.dst_element_bytes,
                           part.loops);
             } else {
               TransformStrided(to.transform, ends, part.unit, part.loops,
                                to.num_beyond);
             }
           });
}

}  // namespace dcp
