// SPDX-License-Identifier: Apache-2.0
// Takes any bytes as a strided piece between two small tensors. A piece that
// passes the check is cut by a box in the source and a window in the
// destination, and copied. The result is equal to that from a loop over the
// elements, and the runs are as few as promised.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

constexpr int64_t kMaxElements = 4096;

// Numbers from the input, then zeros.
class Numbers {
 public:
  explicit Numbers(ByteSpan input) : input_(input) {}

  uint64_t Next() {
    if (at_ == input_.size()) return 0;
    const uint8_t byte = input_[at_++];
    // One byte stands for a number that no tensor has room for.
    return byte == 255 ? std::numeric_limits<uint64_t>::max() / 3 : byte;
  }
  uint64_t Below(uint64_t end) { return end == 0 ? 0 : Next() % end; }

 private:
  ByteSpan input_;
  size_t at_ = 0;
};

Dims ReadShape(Numbers& numbers) {
  Dims shape(numbers.Below(4), 1);
  for (int64_t& size : shape) size = static_cast<int64_t>(numbers.Below(33));
  return shape;
}

Box ReadBox(Numbers& numbers, const Dims& shape) {
  Box box = WholeBox(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    const uint64_t skip = numbers.Below(static_cast<uint64_t>(shape[d]));
    box.offsets[d] = static_cast<int64_t>(skip);
    box.sizes[d] = shape[d] - box.offsets[d];
    box.sizes[d] -= static_cast<int64_t>(
        numbers.Below(static_cast<uint64_t>(box.sizes[d]) + 1));
  }
  return box;
}

StridedPiece ReadPiece(Numbers& numbers, const Dims& src_shape,
                       const Dims& dst_shape) {
  StridedPiece piece;
  if (numbers.Below(8) == 7) piece.src = StridedPiece::kZeros;
  for (size_t d = 0; d < src_shape.size(); ++d) {
    piece.src_base.push_back(numbers.Next());
  }
  for (size_t d = 0; d < dst_shape.size(); ++d) {
    piece.dst_base.push_back(numbers.Next());
  }
  if (piece.src == StridedPiece::kZeros) piece.src_base.clear();
  for (uint64_t i = numbers.Below(10); i > 0; --i) {
    StridedLoop& loop = piece.loops.emplace_back();
    loop.count = numbers.Next();
    loop.src_dim = static_cast<int>(numbers.Below(5)) - 1;
    loop.src_step = numbers.Next();
    loop.dst_dim = static_cast<int>(numbers.Below(5)) - 1;
    loop.dst_step = numbers.Next();
  }
  return piece;
}

// An element's offset in the row-major image of `box`; false if it lies
// outside.
template <typename Index>
bool FindIn(const Box& box, const Index& index, uint64_t& offset) {
  const Dims strides = RowMajorStrides(box.sizes);
  offset = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    const auto at = static_cast<int64_t>(index[d]) - box.offsets[d];
    if (at < 0 || at >= box.sizes[d]) return false;
    offset += static_cast<uint64_t>(at * strides[d]);
  }
  return true;
}

// Copies element by element.
void CopyElements(const StridedPiece& piece, size_t loop, const Window& window,
                  const Box& chunk, const uint8_t* src, uint8_t* dst) {
  if (loop < piece.loops.size()) {
    StridedPiece rest = piece;
    const StridedLoop& steps = piece.loops[loop];
    for (uint64_t i = 0; i < steps.count; ++i) {
      CopyElements(rest, loop + 1, window, chunk, src, dst);
      if (steps.src_dim >= 0) {
        rest.src_base[static_cast<size_t>(steps.src_dim)] += steps.src_step;
      }
      rest.dst_base[static_cast<size_t>(steps.dst_dim)] += steps.dst_step;
    }
    return;
  }
  uint64_t from = 0;
  uint64_t to = 0;
  if (!FindIn(chunk, piece.src_base, from) ||
      !FindIn(window.box, piece.dst_base, to) || to < window.first ||
      to - window.first >= window.num_elements) {
    return;
  }
  dst[to - window.first] = src[from];
}

// The most runs that a one-chunk window may have.
uint64_t MostRuns(const StridedPiece& piece) {
  uint64_t most = 2 * piece.loops.size() + 1;
  for (const PieceSide side : {PieceSide::kSrc, PieceSide::kDst}) {
    for (int dim = 0; dim < 4; ++dim) {
      const auto num_loops = static_cast<uint64_t>(std::count_if(
          piece.loops.begin(), piece.loops.end(), [&](const StridedLoop& loop) {
            return (side == PieceSide::kSrc ? loop.src_dim : loop.dst_dim) ==
                   dim;
          }));
      if (num_loops > 0) most *= 2 * num_loops - 1;
    }
  }
  return most;
}

void Check(Numbers& numbers) {
  const Dims src_shape = ReadShape(numbers);
  const Dims dst_shape = ReadShape(numbers);
  const StridedPiece piece = ReadPiece(numbers, src_shape, dst_shape);
  if (!CheckStridedPiece(piece, src_shape, dst_shape).ok() ||
      Volume(src_shape) > kMaxElements || Volume(dst_shape) > kMaxElements) {
    return;
  }
  const bool is_zeros = piece.src == StridedPiece::kZeros;
  const Box chunk = is_zeros ? Box() : ReadBox(numbers, src_shape);
  Window window{.box = ReadBox(numbers, dst_shape)};
  const auto volume = static_cast<uint64_t>(Volume(window.box.sizes));
  window.first = numbers.Below(volume);
  window.num_elements =
      std::min(volume - window.first, numbers.Next() * 16 + numbers.Below(16));
  std::vector<uint8_t> src(static_cast<size_t>(Volume(chunk.sizes)));
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint8_t> expected(window.num_elements, 1);
  std::vector<uint8_t> copied = expected;
  if (NumElements(piece) > 0) {
    CopyElements(piece, 0, window, chunk, src.data(), expected.data());
  }

  std::vector<NestRun> runs;
  AppendNestRuns(window,
                 {.box = chunk, .strides = RowMajorStrides(chunk.sizes)}, piece,
                 runs);
  DCP_CHECK(runs.size() <= MostRuns(piece), runs.size(), " runs");
  // Through reads of this many bytes.
  const uint64_t length = numbers.Below(100) + 1;
  for (const NestRun& run : runs) {
    for (uint64_t begin = 0; begin < src.size(); begin += length) {
      const ByteSpan data = ByteSpan(src).subspan(begin);
      ApplyRun(run, begin, length, data,
               [&](const NestRun& part, const uint8_t* from) {
                 CopyStrided({from, copied.data() + part.dst}, part.unit,
                             part.loops);
               });
    }
  }
  DCP_CHECK(copied == expected);
  // Through rows of this many bytes that were collected in memory, into a
  // window with two stretches.
  std::fill(copied.begin(), copied.end(), 1);
  const FileRows rows{.offset = 0,
                      .length = length,
                      .stride = length,
                      .count = src.size() / length + 1,
                      .pitch = length + kReadMarginBytes};
  std::vector<uint8_t> memory(rows.count * rows.pitch);
  for (size_t i = 0; i < src.size(); ++i) {
    memory[i / length * rows.pitch + i % length] = src[i];
  }
  const uint64_t middle = numbers.Below(window.num_elements + 1);
  for (const NestRun& run : runs) {
    ApplyRun(run, rows, memory, [&](const NestRun& part, const uint8_t* from) {
      const auto copy = [&](const NestRun& cut) {
        CopyStrided({from + (cut.src - part.src), copied.data() + cut.dst},
                    cut.unit, cut.loops);
      };
      CutByDestination(part, 0, middle, copy);
      CutByDestination(part, middle, window.num_elements, copy);
    });
  }
  DCP_CHECK(copied == expected);
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dcp::Numbers numbers(dcp::ByteSpan(data, size));
  dcp::Check(numbers);
  return 0;
}
