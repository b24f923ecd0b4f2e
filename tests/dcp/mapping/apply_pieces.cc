// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/mapping/apply_pieces.h"

#include <cstdint>
#include <cstring>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::testing {
namespace {

// How a piece walks through a tensor's bytes: the offset where it begins, and
// the bytes in one step of each loop.
struct ByteWalk {
  size_t begin = 0;
  std::vector<size_t> steps;
};

// An error if the piece leaves the tensor.
absl::StatusOr<ByteWalk> WalkIn(const MappingTensor& tensor,
                                absl::Span<const uint64_t> base,
                                const StridedPiece& piece, bool is_src) {
  if (base.size() != tensor.shape.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("a piece has another rank than ", tensor.name));
  }
  const Dims strides = RowMajorStrides(tensor.shape);
  const size_t size = ElementSize(tensor.dtype);
  std::vector<uint64_t> last(base.begin(), base.end());
  ByteWalk walk;
  walk.steps.resize(piece.loops.size());
  for (size_t dim = 0; dim < base.size(); ++dim) {
    walk.begin += base[dim] * static_cast<size_t>(strides[dim]) * size;
  }
  for (size_t l = 0; l < piece.loops.size(); ++l) {
    const StridedLoop& loop = piece.loops[l];
    const int dim = is_src ? loop.src_dim : loop.dst_dim;
    const uint64_t step = is_src ? loop.src_step : loop.dst_step;
    if (loop.count == 0) return absl::OutOfRangeError("an empty loop");
    if (dim < 0) continue;
    last.at(static_cast<size_t>(dim)) += (loop.count - 1) * step;
    walk.steps[l] =
        step * static_cast<size_t>(strides[static_cast<size_t>(dim)]) * size;
  }
  for (size_t dim = 0; dim < last.size(); ++dim) {
    if (last[dim] < static_cast<uint64_t>(tensor.shape[dim])) continue;
    return absl::OutOfRangeError(absl::StrCat("a piece leaves ", tensor.name));
  }
  return walk;
}

// Calls `copy` for the two offsets of each element in a piece.
absl::Status ForElements(
    const StridedPiece& piece, const MappingTensor* src,
    const MappingTensor& dst,
    absl::FunctionRef<absl::Status(size_t from, size_t to)> copy) {
  DCP_ASSIGN_OR_RETURN(const ByteWalk to,
                       WalkIn(dst, piece.dst_base, piece, /*is_src=*/false));
  ByteWalk from;
  from.steps.resize(piece.loops.size());
  if (src != nullptr) {
    DCP_ASSIGN_OR_RETURN(from,
                         WalkIn(*src, piece.src_base, piece, /*is_src=*/true));
  }
  std::vector<uint64_t> at(piece.loops.size());
  while (true) {
    size_t from_offset = from.begin;
    size_t to_offset = to.begin;
    for (size_t l = 0; l < at.size(); ++l) {
      from_offset += at[l] * from.steps[l];
      to_offset += at[l] * to.steps[l];
    }
    DCP_RETURN_IF_ERROR(copy(from_offset, to_offset));
    size_t l = at.size();
    while (l > 0 && ++at[l - 1] == piece.loops[l - 1].count) at[--l] = 0;
    if (l == 0) return absl::OkStatus();
  }
}

absl::Status CheckTies(const MappedTensors& mapped,
                       absl::Span<const ArrayTensor> sources) {
  for (const StridedPiece& tie : mapped.ties) {
    const ArrayTensor& src = sources.at(tie.src);
    const ArrayTensor& dst = sources.at(tie.dst);
    const size_t size = ElementSize(src.tensor.dtype);
    DCP_RETURN_IF_ERROR(
        ForElements(tie, &src.tensor, dst.tensor, [&](size_t from, size_t to) {
          return src.bytes.compare(from, size, dst.bytes, to, size) == 0
                     ? absl::OkStatus()
                     : absl::DataLossError(absl::StrCat(
                           dst.tensor.name, " differs from ", src.tensor.name));
        }));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<MappingTensor> WithoutBytes(absl::Span<const ArrayTensor> arrays) {
  std::vector<MappingTensor> tensors;
  for (const ArrayTensor& array : arrays) tensors.push_back(array.tensor);
  return tensors;
}

absl::StatusOr<std::vector<ArrayTensor>> ApplyPieces(
    const MappedTensors& mapped, absl::Span<const ArrayTensor> sources) {
  DCP_RETURN_IF_ERROR(CheckTies(mapped, sources));
  std::vector<ArrayTensor> made;
  std::vector<std::vector<bool>> written;
  for (const MappingTensor& tensor : mapped.tensors) {
    const size_t volume = static_cast<size_t>(Volume(tensor.shape));
    made.push_back(
        {.tensor = tensor,
         .bytes = std::string(volume * ElementSize(tensor.dtype), '\xAB')});
    written.emplace_back(made.back().bytes.size());
  }
  for (const StridedPiece& piece : mapped.pieces) {
    ArrayTensor& dst = made.at(piece.dst);
    const ArrayTensor* src =
        piece.src == StridedPiece::kZeros ? nullptr : &sources.at(piece.src);
    const size_t size = ElementSize(dst.tensor.dtype);
    DCP_RETURN_IF_ERROR(ForElements(
        piece, src == nullptr ? nullptr : &src->tensor, dst.tensor,
        [&](size_t from, size_t to) {
          if (written[piece.dst][to]) {
            return absl::AlreadyExistsError(
                absl::StrCat(dst.tensor.name, " is written twice at ", to));
          }
          written[piece.dst][to] = true;
          if (src == nullptr) {
            std::memset(dst.bytes.data() + to, 0, size);
          } else {
            std::memcpy(dst.bytes.data() + to, src->bytes.data() + from, size);
          }
          return absl::OkStatus();
        }));
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const size_t size = ElementSize(made[i].tensor.dtype);
    for (size_t at = 0; at < written[i].size(); at += size) {
      if (!written[i][at]) {
        return absl::DataLossError(
            absl::StrCat(made[i].tensor.name, " is not written at ", at));
      }
    }
  }
  return made;
}

bool PaddingsAreZero(const MappedTensors& mapped,
                     absl::Span<const ArrayTensor> sources) {
  bool are_zero = true;
  for (const StridedPiece& padding : mapped.paddings) {
    const ArrayTensor& dst = sources.at(padding.dst);
    const size_t size = ElementSize(dst.tensor.dtype);
    const absl::Status status = ForElements(
        padding, nullptr, dst.tensor, [&](size_t /*from*/, size_t to) {
          are_zero =
              are_zero && dst.bytes.substr(to, size) == std::string(size, '\0');
          return absl::OkStatus();
        });
    are_zero = are_zero && status.ok();
  }
  return are_zero;
}

}  // namespace dcp::testing
