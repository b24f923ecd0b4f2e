// SPDX-License-Identifier: Apache-2.0
// [Note: joined windows] A file's image goes into blocks, and one block's part
// of a transposed matrix is a narrow stripe of the source: a stretch of each
// row. Planned alone, each block in a batch would have an extent and a copy for
// each row. So a window that continues another one in the batch is joined to
// it, and both are planned again as one window with memory in several
// stretches. That is worthwhile as long as a window is a few nests of loops, at
// any size; others are planned once and not joined.
#include "dcp/checkpoint/read/window_planner.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/lens_pieces.h"
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

// The most indices that are kept. Output moves through the tensors in order, so
// it does not need the indices of earlier tensors again.
constexpr size_t kMaxIndices = 256;

// The most chunks that may be compared with each part of a mapped tensor.
constexpr size_t kFewChunks = 64;

// See [Note: joined windows]: the most pieces and nests that are few, and the
// most windows that are searched for one that the next continues.
constexpr size_t kFewPieces = 16;
constexpr size_t kFewNests = 64;
constexpr size_t kMaxOpenWindows = 64;

Box FindBounds(const Window& window) {
  return WindowBounds(window.box, window.first, window.num_elements);
}

// Whether the elements in `bounds` are made from a few stored pieces. Zeros are
// written, and lensed elements computed, window by window.
bool IsJoinable(const MappedTensor& mapped, const Box& bounds) {
  size_t num_pieces = 0;
  bool all_stored = true;
  mapped.ForEachPieceNear(bounds, [&](const StridedPiece& piece) {
    const TensorEntry* source = mapped.PieceSource(piece);
    ++num_pieces;
    all_stored = all_stored && source != nullptr && source->lensed == nullptr;
  });
  return all_stored && num_pieces <= kFewPieces;
}

// The index in `destinations` of the one that suits a chunk's elements.
// Elements in one window are mostly alike and share it.
uint32_t TagFor(const ChunkLocation& location,
                const WindowDestination& destination,
                std::vector<WindowDestination>& destinations) {
  WindowDestination wanted = destination;
  wanted.transform.swap_bytes = location.swap_bytes;
  wanted.transform.conj = location.conj;
  wanted.transform.neg = location.neg;
  if (destinations.empty() || destinations.back() != wanted) {
    destinations.push_back(std::move(wanted));
  }
  return static_cast<uint32_t>(destinations.size() - 1);
}

// The place of a located chunk's elements, in the files of all sources.
ChunkView MakeChunkView(const TensorEntry& tensor, uint32_t file_base,
                        size_t chunk) {
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
  const uint32_t file_base = FirstFileNumber(files);
  const Window window{.box = box,
                      .first = first,
                      .num_elements = num_elements,
                      .element_bytes = static_cast<uint32_t>(ElementSize(to))};
  const WindowDestination destination{
      .memory = {{.begin = 0, .dst = dst}},
      .transform = {.from = tensor.dtype, .to = to},
      .num_beyond = tensor.dtype == to ? nullptr : num_beyond};
  if (tensor.mapped != nullptr) {
    AddMapped({.mapped = tensor.mapped,
               .file_base = file_base,
               .window = window,
               .destination = destination});
    return;
  }
  const Box bounds = WindowBounds(box, first, num_elements);
  if (tensor.boxes.size() == 1) {
    const std::optional<Box> overlap = Intersect(bounds, tensor.boxes[0]);
    DCP_CHECK(overlap.has_value(), ToString(bounds));
    AddChunk(tensor, file_base, 0, window, *overlap, destination);
    return;
  }
  FindOrMakeIndex(tensor).ForEachOverlap(
      bounds, [&](size_t chunk, const Box& overlap) {
        AddChunk(tensor, file_base, chunk, window, overlap, destination);
      });
}

void WindowPlanner::AddChunk(const TensorEntry& tensor, uint32_t file_base,
                             size_t chunk, const Window& window,
                             const Box& overlap,
                             const WindowDestination& destination) {
  WindowScatter& scatter = plan_->scatter;
  Window tagged = window;
  tagged.tag =
      TagFor(tensor.locations[chunk], destination, scatter.destinations);
  AppendCopyRuns(tagged, MakeChunkView(tensor, file_base, chunk), overlap,
                 scatter.runs);
}

void WindowPlanner::AddMapped(MappedWindow added) {
  if (!IsJoinable(*added.mapped, FindBounds(added.window))) {
    PlanMapped(added);
    Close(std::move(added));
    return;
  }
  for (auto before = open_.rbegin(); before != open_.rend(); ++before) {
    if (Extend(*before, added)) return;
  }
  PlanMapped(added);
  if (added.nests.size() > kFewNests) {
    Close(std::move(added));
    return;
  }
  if (open_.size() >= kMaxOpenWindows) {
    Close(std::move(open_.front()));
    open_.pop_front();
  }
  open_.push_back(std::move(added));
}

// Joins `added` to `before`, if it continues it and both are few nests. See
// [Note: joined windows].
bool WindowPlanner::Extend(MappedWindow& before, const MappedWindow& added) {
  const Window& window = before.window;
  if (before.nests.size() > kFewNests || before.mapped != added.mapped ||
      before.file_base != added.file_base || window.box != added.window.box ||
      window.first + window.num_elements != added.window.first ||
      before.destination.transform != added.destination.transform ||
      before.destination.num_beyond != added.destination.num_beyond) {
    return false;
  }
  MappedWindow joined = {.mapped = before.mapped,
                         .file_base = before.file_base,
                         .window = window,
                         .destination = before.destination};
  joined.window.num_elements += added.window.num_elements;
  joined.destination.memory.push_back(
      {.begin = window.num_elements * window.element_bytes,
       .dst = added.destination.memory.front().dst});
  if (!IsJoinable(*joined.mapped, FindBounds(joined.window))) return false;
  num_nest_extents_ -= before.num_extents;
  PlanMapped(joined);
  before = std::move(joined);
  return true;
}

// Plans the pieces that make a window in a mapped tensor.
void WindowPlanner::PlanMapped(MappedWindow& to) {
  const Box bounds = FindBounds(to.window);
  to.mapped->ForEachPieceNear(bounds, [&](const StridedPiece& piece) {
    const TensorEntry* source = to.mapped->PieceSource(piece);
    if (source == nullptr) {
      AddZeros(piece, to);
      return;
    }
    Clip(piece, PieceSide::kDst, bounds, [&](const StridedPiece& part) {
      if (source->lensed != nullptr && source->lensed->is_encoded()) {
        AddEncoded(*source->lensed, to);
      } else if (source->lensed != nullptr) {
        AddLensed(*source->lensed, part, to);
      } else {
        AddPart(*source, part, to.destination, to);
      }
    });
  });
  uint64_t num_made = to.num_ready;
  for (const NestRun& nest : to.nests) {
    num_made += NumElements(nest);
    to.num_extents += NumExtents(nest, kReadGapBytes);
  }
  num_nest_extents_ += to.num_extents;
  if (num_made != to.window.num_elements) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(
        "the pieces of a mapped tensor make ", num_made, " of the ",
        to.window.num_elements, " elements from ", to.window.first, " of ",
        ToString(to.window.box), " on: each must be made once")));
  }
}

// Adds a window's plan to the batch's plan.
void WindowPlanner::Close(MappedWindow window) {
  WindowScatter& scatter = plan_->scatter;
  const auto first_tag = static_cast<uint32_t>(scatter.destinations.size());
  for (NestRun& nest : window.nests) {
    nest.tag += first_tag;
    scatter.nests.push_back(std::move(nest));
  }
  for (WindowDestination& destination : window.destinations) {
    scatter.destinations.push_back(std::move(destination));
  }
}

void WindowPlanner::AddPart(const TensorEntry& source, const StridedPiece& part,
                            const WindowDestination& destination,
                            MappedWindow& to) {
  const auto add = [&](const StridedPiece& piece, size_t chunk) {
    Window tagged = to.window;
    tagged.tag = TagFor(source.locations[chunk], destination, to.destinations);
    AppendNestRuns(tagged, MakeChunkView(source, to.file_base, chunk), piece,
                   to.nests);
  };
  if (source.boxes.size() == 1) {
    add(part, 0);
    return;
  }
  const ChunkIndex& index = FindOrMakeIndex(source);
  const auto add_near = [&](const StridedPiece& piece) {
    index.ForEachOverlap(FindBounds(piece, PieceSide::kSrc),
                         [&](size_t chunk, const Box&) { add(piece, chunk); });
  };
  if (source.boxes.size() <= kFewChunks) {
    add_near(part);
  } else {
    ForEachDensePart(part, add_near);
  }
}

bool WindowPlanner::CheckHolds(const LensedTensor& lensed, DType type) {
  if (LensPass::Holds(lensed, type)) return true;
  status_.Update(absl::InvalidArgumentError(absl::StrCat(
      "elements that are computed as ", TorchName(lensed.entry().dtype),
      " cannot become ", TorchName(type),
      " at the same time; cast them in a second run")));
  return false;
}

// See [Note: lenses].
void WindowPlanner::AddLensed(const LensedTensor& lensed,
                              const StridedPiece& part, MappedWindow& to) {
  const DType type = to.destination.transform.to;
  if (!CheckHolds(lensed, type)) return;
  const StridedPiece inner =
      lensed.is_transposed() ? WithLastTwoSwapped(part) : part;
  plan_->lensed.push_back({&lensed, inner, to.window, type,
                           to.destination.memory.front().dst,
                           to.destination.num_beyond});
  WindowDestination values = to.destination;
  values.num_beyond = nullptr;
  values.transform.from = lensed.values().dtype;
  if (!lensed.has_two_a_byte()) {
    AddPart(lensed.values(), inner, values, to);
    return;
  }
  const TensorEntry* const bytes = FindOrMakeCodeBytes(lensed);
  if (bytes == nullptr) return;
  values.transform.from = DType::kFloat4E2M1FNX2;
  ForEachHalf(inner, [&](const StridedPiece& half, bool is_high) {
    values.transform.high_half = is_high;
    AddPart(*bytes, half, values, to);
  });
}

void WindowPlanner::AddEncoded(const LensedTensor& lensed, MappedWindow& to) {
  if (!CheckHolds(lensed, to.destination.transform.to)) return;
  // The mapped tensor is the whole encoded tensor.
  plan_->encoded.push_back(
      {&lensed, to.window, to.destination.memory.front().dst});
  to.num_ready += to.window.num_elements;
}

// The codes as bytes; null, with an error in status_, if they cannot be viewed
// as bytes.
const TensorEntry* WindowPlanner::FindOrMakeCodeBytes(
    const LensedTensor& lensed) {
  auto it = code_bytes_.find(&lensed);
  if (it != code_bytes_.end()) return it->second.get();
  absl::StatusOr<std::unique_ptr<const TensorEntry>> bytes =
      lensed.CodesAsBytes();
  if (!bytes.ok()) {
    status_.Update(bytes.status());
    return nullptr;
  }
  return code_bytes_.emplace(&lensed, *std::move(bytes)).first->second.get();
}

// Zeros need no read, so they are written at once.
void WindowPlanner::AddZeros(const StridedPiece& piece,
                             MappedWindow& to) const {
  static constexpr uint8_t kZeros[16] = {};
  std::vector<NestRun> runs;
  AppendNestRuns(
      to.window,
      {.box = {}, .strides = {}, .element_bytes = to.window.element_bytes},
      piece, runs);
  for (const NestRun& run : runs) {
    to.num_ready += NumElements(run);
    if (reports_plans_) continue;
    CopyStrided({kZeros, to.destination.memory.front().dst + run.dst},
                run.unit * run.dst_element_bytes, run.loops);
  }
}

const ChunkIndex& WindowPlanner::FindOrMakeIndex(const TensorEntry& tensor) {
  auto it = indices_.find(&tensor);
  if (it == indices_.end()) {
    if (indices_.size() >= kMaxIndices) indices_.clear();
    it = indices_.emplace(&tensor, std::make_unique<ChunkIndex>(tensor.boxes))
             .first;
  }
  return *it->second;
}

uint32_t WindowPlanner::FirstFileNumber(SourceFiles& files) {
  uint32_t base = 0;
  for (SourceFiles* source : sources_) {
    if (source == &files) return base;
    base += static_cast<uint32_t>(source->names().size());
  }
  sources_.push_back(&files);
  return base;
}

absl::Status WindowPlanner::Finish(Batch& batch, uint64_t block_bytes) {
  for (MappedWindow& window : open_) Close(std::move(window));
  open_.clear();
  num_nest_extents_ = 0;
  std::unique_ptr<Plan> plan = std::exchange(plan_, std::make_unique<Plan>());
  WindowScatter& scatter = plan->scatter;
  DCP_RETURN_IF_ERROR(std::exchange(status_, absl::OkStatus()));
  DCP_RETURN_IF_ERROR(
      Encode(std::exchange(plan->encoded, {}), batch.num_bytes_read));
  if (scatter.runs.empty() && scatter.nests.empty()) return absl::OkStatus();
  scatter.Schedule(
      {MaxReadBytes(block_bytes), ReadGapBytes(sources_[0]->traits())});
  for (const ReadRange& range : scatter.ranges()) {
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
    if (check_ != nullptr && reports_plans_ &&
        range.file < check_->files().names().size()) {
      check_->WouldSee(range.file, range.offset, range.length);
    }
  }
  plan->num_reads_left = scatter.ranges().size();
  batch.on_read = [check = check_, plan = std::move(plan),
                   &num_bytes_read = batch.num_bytes_read](
                      size_t read, ByteSpan data) -> absl::Status {
    plan->scatter.Scatter(read, data);
    const ReadRange& range = plan->scatter.ranges()[read];
    // The files of the check's checkpoint come first.
    if (check != nullptr && range.file < check->files().names().size()) {
      // Includes the margin behind the range, in which an element may end.
      DCP_RETURN_IF_ERROR(check->Saw(range.file, range.offset, data));
    }
    if (--plan->num_reads_left > 0) return absl::OkStatus();
    return ComputeLensed(*plan, check, num_bytes_read);
  };
  return absl::OkStatus();
}

absl::Status WindowPlanner::ComputeLensed(const Plan& plan, SourceCheck* check,
                                          uint64_t& num_bytes_read) {
  LensPass pass;
  for (const LensedWindow& work : plan.lensed) {
    const auto read = [&](const LensTable& table, const Box& box, DType as,
                          uint8_t* dst) {
      return ReadTable(work.tensor->fs(), table, box, as, check, dst,
                       num_bytes_read);
    };
    DCP_RETURN_IF_ERROR(pass.Run(work, read));
  }
  return absl::OkStatus();
}

absl::Status WindowPlanner::Encode(std::vector<EncodedWindow> encoded,
                                   uint64_t& num_bytes_read) {
  // So that windows which need the same blocks come one after the other.
  std::stable_sort(encoded.begin(), encoded.end(),
                   [](const EncodedWindow& a, const EncodedWindow& b) {
                     return std::less<>()(a.tensor, b.tensor);
                   });
  BlockEncoder encoder;
  for (const EncodedWindow& work : encoded) {
    if (reports_plans_) {
      absl::Status status;
      BlockEncoder::ForEachTile(work, [&](const Box& tile) {
        status.Update(ReportTableReads(work.tensor->tables()[0], tile));
      });
      DCP_RETURN_IF_ERROR(status);
      continue;
    }
    DCP_RETURN_IF_ERROR(encoder.Run(
        work,
        [&](const LensTable& table, const Box& box, DType as, uint8_t* dst) {
          return ReadTable(work.tensor->fs(), table, box, as, check_, dst,
                           num_bytes_read);
        }));
  }
  return absl::OkStatus();
}

// Tells the check which bytes it would see if a box of a table were read.
absl::Status WindowPlanner::ReportTableReads(const LensTable& table,
                                             const Box& box) {
  WindowPlanner planner(check_);
  planner.ReportPlans();
  planner.Add(*table.tensor, *table.files, box, table.tensor->dtype, 0,
              static_cast<uint64_t>(Volume(box.sizes)), nullptr);
  Batch batch;
  return planner.Finish(batch, kBlockBytes);
}

// Reads a box from a table while the caller waits.
absl::Status WindowPlanner::ReadTable(FileSystem& fs, const LensTable& table,
                                      const Box& box, DType as,
                                      SourceCheck* check, uint8_t* dst,
                                      uint64_t& num_bytes_read) {
  const bool is_checked = check != nullptr && table.files == &check->files();
  WindowPlanner planner(is_checked ? check : nullptr);
  planner.Add(*table.tensor, *table.files, box, as, 0,
              static_cast<uint64_t>(Volume(box.sizes)), dst);
  Batch batch;
  DCP_RETURN_IF_ERROR(planner.Finish(batch, kBlockBytes));
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < batch.reads.size(); ++i) {
    const PlannedRead& read = batch.reads[i];
    bytes.resize(
        std::min(read.length + kReadMarginBytes, read.file.size - read.offset));
    DCP_RETURN_IF_ERROR(
        WithSide(Annotate(fs.Read(read.file, read.offset,
                                  MutableByteSpan(bytes.data(), bytes.size())),
                          "read ", table.name),
                 ErrorSide::kSource));
    DCP_RETURN_IF_ERROR(batch.on_read(i, ByteSpan(bytes.data(), bytes.size())));
    num_bytes_read += read.length;
  }
  num_bytes_read += batch.num_bytes_read;
  return absl::OkStatus();
}

}  // namespace dcp
