#include "dcp/checkpoint/read/window_planner.h"

#include <cstring>
#include <optional>
#include <utility>

#include "dcp/base/check.h"
#include "dcp/base/error_side.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/read/read_run.h"

namespace dcp {
namespace {

// How many indices are kept. Output moves through the tensors in order, so
// those of earlier tensors are no longer useful.
constexpr size_t kMaxIndices = 256;

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
  const ChunkLocation& location = tensor.locations[chunk];
  DCP_CHECK(location.located);
  Window tagged = window;
  tagged.tag = static_cast<uint32_t>(plan_->destinations.size());
  ElementTransform& transform =
      plan_->destinations.emplace_back(destination).transform;
  transform.swap_bytes = location.swap_bytes;
  transform.conj = location.conj;
  transform.neg = location.neg;
  const ChunkView view{
      .box = tensor.boxes[chunk],
      .strides = location.strides.empty()
                     ? RowMajorStrides(tensor.boxes[chunk].sizes)
                     : location.strides,
      .file = file_base + location.item.file,
      .offset = location.payload_offset,
      .element_bytes = static_cast<uint32_t>(ElementSize(tensor.dtype))};
  AppendCopyRuns(tagged, view, overlap, plan_->runs);
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
  if (plan->runs.empty()) return absl::OkStatus();
  plan->schedule = ScheduleReads(
      plan->runs,
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
    const CopyRun& run =
        plan.runs[plan.schedule.run_indices[range.first_run + i]];
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

}  // namespace dcp
