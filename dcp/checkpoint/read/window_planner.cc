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
#include "dcp/checkpoint/read/read_run.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

// How many indices are kept. Output moves through the tensors in order, so
// those of earlier tensors are no longer useful.
constexpr size_t kMaxIndices = 256;

// So many chunks may be compared with each part of a mapped tensor.
constexpr size_t kFewChunks = 64;

// The piece of a source whose last two dimensions are in the other order.
StridedPiece WithLastTwoSwapped(StridedPiece piece) {
  const auto last = static_cast<int>(piece.src_base.size()) - 1;
  std::swap(piece.src_base[static_cast<size_t>(last - 1)],
            piece.src_base[static_cast<size_t>(last)]);
  for (StridedLoop& loop : piece.loops) {
    if (loop.src_dim >= last - 1) loop.src_dim = 2 * last - 1 - loop.src_dim;
  }
  return piece;
}

// Calls `visit` with pieces of the bytes of which each holds two elements that
// are adjacent in the last dimension of the source. A loop that walks along it
// in odd steps meets low and high halves in turn.
void ForEachHalf(
    const StridedPiece& piece,
    absl::FunctionRef<void(const StridedPiece& half, bool is_high)> visit) {
  const auto last = static_cast<int>(piece.src_base.size()) - 1;
  const auto is_odd = [&](const StridedLoop& loop) {
    return loop.src_dim == last && loop.count > 1 && loop.src_step % 2 != 0;
  };
  const auto odd = std::find_if(piece.loops.begin(), piece.loops.end(), is_odd);
  StridedPiece half = piece;
  if (odd == piece.loops.end()) {
    uint64_t& base = half.src_base.back();
    const bool is_high = base % 2 != 0;
    base /= 2;
    for (StridedLoop& loop : half.loops) {
      if (loop.src_dim == last) loop.src_step /= 2;
    }
    visit(half, is_high);
    return;
  }
  StridedLoop& loop =
      half.loops[static_cast<size_t>(odd - piece.loops.begin())];
  loop.src_step *= 2;
  loop.dst_step *= 2;
  for (const uint64_t parity : {0, 1}) {
    loop.count = (odd->count + 1 - parity) / 2;
    half.src_base.back() = piece.src_base.back() + parity * odd->src_step;
    half.dst_base[static_cast<size_t>(odd->dst_dim)] =
        piece.dst_base[static_cast<size_t>(odd->dst_dim)] +
        parity * odd->dst_step;
    ForEachHalf(half, visit);
  }
}

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
  num_ready_ = 0;
  const Box bounds =
      WindowBounds(window.box, window.first, window.num_elements);
  mapped.ForEachPieceNear(bounds, [&](const StridedPiece& piece) {
    const TensorEntry* source = mapped.SourceOf(piece);
    if (source == nullptr) {
      AddZeros(piece, window, destination);
      return;
    }
    Clip(piece, PieceSide::kDst, bounds, [&](const StridedPiece& part) {
      if (source->lensed != nullptr && source->lensed->is_encoded()) {
        AddEncoded(*source->lensed, window, destination);
      } else if (source->lensed != nullptr) {
        AddLensed(*source->lensed, file_base, part, window, destination);
      } else {
        AddPart(*source, file_base, part, window, destination);
      }
    });
  });
  uint64_t num_made = num_ready_;
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

bool WindowPlanner::CheckHolds(const LensedTensor& lensed, DType type) {
  if (LensPass::Holds(lensed, type)) return true;
  status_.Update(absl::InvalidArgumentError(absl::StrCat(
      "elements that are computed as ", TorchName(lensed.entry().dtype),
      " cannot become ", TorchName(type),
      " at the same time; cast them in a second run")));
  return false;
}

// See [Note: lenses].
void WindowPlanner::AddLensed(const LensedTensor& lensed, uint32_t file_base,
                              const StridedPiece& part, const Window& window,
                              const Destination& destination) {
  const DType type = destination.transform.to;
  if (!CheckHolds(lensed, type)) return;
  const StridedPiece inner =
      lensed.is_transposed() ? WithLastTwoSwapped(part) : part;
  plan_->lensed.push_back(
      {&lensed, inner, window, type, destination.dst, destination.num_beyond});
  Destination values = destination;
  values.num_beyond = nullptr;
  values.transform.from = lensed.values().dtype;
  if (!lensed.has_two_a_byte()) {
    AddPart(lensed.values(), file_base, inner, window, values);
    return;
  }
  const TensorEntry* const bytes = BytesOf(lensed);
  if (bytes == nullptr) return;
  values.transform.from = DType::kFloat4E2M1FNX2;
  ForEachHalf(inner, [&](const StridedPiece& half, bool is_high) {
    values.transform.high_half = is_high;
    AddPart(*bytes, file_base, half, window, values);
  });
}

void WindowPlanner::AddEncoded(const LensedTensor& lensed, const Window& window,
                               const Destination& destination) {
  if (!CheckHolds(lensed, destination.transform.to)) return;
  // The mapped tensor is the whole of what is encoded.
  plan_->encoded.push_back({&lensed, window, destination.dst});
  num_ready_ += window.num_elements;
}

// The codes as bytes; null, with an error in status_, if they cannot be seen
// so.
const TensorEntry* WindowPlanner::BytesOf(const LensedTensor& lensed) {
  auto it = bytes_of_.find(&lensed);
  if (it != bytes_of_.end()) return it->second.get();
  absl::StatusOr<std::unique_ptr<const TensorEntry>> bytes =
      lensed.BytesOfCodes();
  if (!bytes.ok()) {
    status_.Update(bytes.status());
    return nullptr;
  }
  return bytes_of_.emplace(&lensed, *std::move(bytes)).first->second.get();
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
    num_ready_ += NumElements(run);
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
  DCP_RETURN_IF_ERROR(
      Encode(std::exchange(plan->encoded, {}), batch.num_bytes_read));
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
  plan->num_reads_left = plan->schedule.ranges.size();
  batch.on_read = [check = check_, plan = std::move(plan),
                   &num_bytes_read = batch.num_bytes_read](
                      size_t read, ByteSpan data) -> absl::Status {
    const ReadRange& range = plan->schedule.ranges[read];
    Scatter(*plan, range, data);
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
    if (tells_of_plans_) {
      absl::Status status;
      BlockEncoder::ForEachTile(work, [&](const Box& tile) {
        status.Update(TellOf(work.tensor->tables()[0], tile));
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

// Tells the check what would be seen if a box of a table were read.
absl::Status WindowPlanner::TellOf(const LensTable& table, const Box& box) {
  WindowPlanner planner(check_);
  planner.TellOfPlans();
  planner.Add(*table.tensor, *table.files, box, table.tensor->dtype, 0,
              static_cast<uint64_t>(Volume(box.sizes)), nullptr);
  Batch batch;
  return planner.Finish(batch, kBlockBytes);
}

// Reads a box of a table while the caller waits.
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
