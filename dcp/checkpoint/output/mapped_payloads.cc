// SPDX-License-Identifier: Apache-2.0
// Computes how far mapped payloads scatter their reads, from the runs that make
// each box.
//
// Tested by tests/dcp/checkpoint/write/mapped_transfer_test.cc.
#include "dcp/checkpoint/output/mapped_payloads.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

// How many matrices a batch should hold.
constexpr uint64_t kMatricesPerBatch = 4;

// More than any memory, and small enough that products fit 64 bits.
constexpr uint64_t kMostScatteredBytes = uint64_t{1} << 40;

// Calls `visit` with the runs that make a box in a mapped tensor, as if each
// source were stored as one row-major chunk.
void ForEachRun(
    const MappedTensor& mapped, const Box& box,
    absl::FunctionRef<void(const TensorEntry& source, const NestRun&)> visit) {
  const auto element = static_cast<uint32_t>(ElementSize(mapped.entry().dtype));
  const Window window{.box = box,
                      .first = 0,
                      .num_elements = static_cast<uint64_t>(Volume(box.sizes)),
                      .dst = 0,
                      .element_bytes = element,
                      .tag = 0};
  std::vector<NestRun> runs;
  mapped.ForEachPieceNear(box, [&](const StridedPiece& piece) {
    const TensorEntry* source = mapped.PieceSource(piece);
    if (source == nullptr) return;
    const ChunkView whole{.box = WholeBox(source->shape),
                          .strides = RowMajorStrides(source->shape),
                          .file = 0,
                          .offset = 0,
                          .element_bytes = element};
    runs.clear();
    AppendNestRuns(window, whole, piece, runs);
    for (const NestRun& run : runs) visit(*source, run);
  });
}

// The source bytes that a run extends over, without the loops that are the
// outermost on both sides: they go through source and destination in the same
// order.
uint64_t RunScatteredBytes(const NestRun& run) {
  uint64_t extent = run.unit * run.src_element_bytes;
  uint64_t scattered = 0;
  for (size_t i = run.loops.size(); i-- > 0;) {
    const CopyLoop& loop = run.loops[i];
    const bool in_order = loop.src_stride == 0 || loop.src_stride >= extent;
    extent += (loop.count - 1) * loop.src_stride;
    if (!in_order) scattered = extent;
  }
  return scattered;
}

// Whether a run reads stripes, so that reads would include the bytes between
// them.
bool IsStriped(const NestRun& run) {
  return NumExtents(run, 0) != NumExtents(run, kObjectReadGapBytes);
}

bool IsMapped(const Payload& payload) {
  return payload.stored != nullptr && payload.stored->mapped != nullptr;
}

}  // namespace

uint64_t ScatteredBytes(const MappedTensor& mapped, const Box& box) {
  uint64_t most = 0;
  ForEachRun(mapped, box, [&](const TensorEntry&, const NestRun& run) {
    most = std::max(most, RunScatteredBytes(run));
  });
  return most;
}

uint64_t ScatteredBytes(const Output& output) {
  uint64_t most = 0;
  for (const Payload& payload : output.payloads) {
    if (!IsMapped(payload)) continue;
    most = std::max(most, ScatteredBytes(*payload.stored->mapped, payload.box));
  }
  return most;
}

uint64_t BlocksForScattered(uint64_t scattered_bytes, uint64_t block_bytes) {
  const uint64_t bytes = std::min(scattered_bytes, kMostScatteredBytes);
  return (kMatricesPerBatch * bytes + block_bytes - 1) / block_bytes;
}

bool MappedFilesShareSources(const Output& output) {
  struct Use {
    size_t file;  // the first that needs the source
    bool is_shared = false;
    bool is_striped = false;
  };
  absl::flat_hash_map<const TensorEntry*, Use> uses;
  for (size_t file = 0; file < output.files.size(); ++file) {
    for (const LayoutPart& part : output.files[file].layout.parts()) {
      if (part.payload_length == 0) continue;
      const Payload& payload = output.payloads[part.payload];
      if (!IsMapped(payload)) continue;
      const auto note = [&](const TensorEntry& source, const NestRun& run) {
        Use& use = uses.try_emplace(&source, Use{.file = file}).first->second;
        use.is_shared = use.is_shared || use.file != file;
        use.is_striped = use.is_striped || IsStriped(run);
      };
      ForEachRun(*payload.stored->mapped, payload.box, note);
    }
  }
  return std::any_of(uses.begin(), uses.end(), [](const auto& use) {
    return use.second.is_shared && use.second.is_striped;
  });
}

}  // namespace dcp
