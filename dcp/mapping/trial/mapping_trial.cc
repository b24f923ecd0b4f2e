// SPDX-License-Identifier: Apache-2.0
// Fills sources with random bits, maps them there and back, and compares them.
// Tested by tests/dcp/mapping/trial/round_trip_test.cc.
#include "dcp/mapping/trial/mapping_trial.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/plan/strided/copy_run.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/strided_copy.h"

namespace dcp {
namespace {

using Bytes = std::vector<uint8_t>;

// Tensors with their elements.
struct Filled {
  absl::Span<const MappingTensor> tensors;
  std::vector<Bytes> bytes;
};

uint64_t NumBytes(const MappingTensor& tensor) {
  return static_cast<uint64_t>(Volume(tensor.shape)) *
         ElementSize(tensor.dtype);
}

absl::Status CheckSize(absl::Span<const MappingTensor> tensors) {
  uint64_t num_elements = 0;
  for (const MappingTensor& tensor : tensors) {
    const std::optional<int64_t> volume = CheckedVolume(tensor.shape);
    num_elements =
        CheckedAdd(num_elements, static_cast<uint64_t>(volume.value_or(-1)))
            .value_or(kMaxInventedElements + 1);
    if (volume.has_value() && num_elements <= kMaxInventedElements) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the tensors have more than ", kMaxInventedElements,
                     " elements; give a smaller model, or let maps check look "
                     "at shapes alone"));
  }
  return absl::OkStatus();
}

// Copies a piece's elements as a conversion does.
void CopyPiece(const StridedPiece& piece, const MappingTensor& src,
               const Bytes& src_bytes, const MappingTensor& dst,
               Bytes& dst_bytes) {
  const auto size = static_cast<uint32_t>(ElementSize(dst.dtype));
  Window window{.box = WholeBox(dst.shape), .element_bytes = size};
  window.num_elements = static_cast<uint64_t>(Volume(dst.shape));
  ChunkView chunk;
  chunk.element_bytes = size;
  // Zeros are one element, which is repeated.
  const Bytes zero(size, 0);
  const bool is_zero = piece.src == StridedPiece::kZeros;
  if (!is_zero) {
    chunk.box = WholeBox(src.shape);
    chunk.strides = RowMajorStrides(src.shape);
  }
  const Bytes& from = is_zero ? zero : src_bytes;
  std::vector<NestRun> runs;
  AppendNestRuns(window, chunk, piece, runs);
  for (const NestRun& run : runs) {
    ApplyRun(run, 0, from.size(), from,
             [&](const NestRun& part, const uint8_t* begin) {
               CopyStrided({begin, dst_bytes.data() + part.dst},
                           part.unit * size, part.loops);
             });
  }
}

Filled Fill(absl::Span<const MappingTensor> tensors, uint32_t seed) {
  std::mt19937 random(seed);
  Filled filled{.tensors = tensors, .bytes = {}};
  for (const MappingTensor& tensor : tensors) {
    Bytes& bytes = filled.bytes.emplace_back(NumBytes(tensor));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  }
  return filled;
}

// The source bytes for a piece that stays within one set of tensors; a copy,
// because the same tensor may be the destination too.
Bytes CopySource(const StridedPiece& piece, const Filled& filled) {
  return piece.src == StridedPiece::kZeros ? Bytes() : filled.bytes[piece.src];
}

const MappingTensor& FindSource(const StridedPiece& piece,
                                const Filled& filled) {
  static const MappingTensor kNone;
  return piece.src == StridedPiece::kZeros ? kNone : filled.tensors[piece.src];
}

// Makes tied elements equal, and padding zero.
void MakeFit(const MappedTensors& mapped, Filled& sources) {
  for (const auto* pieces : {&mapped.ties, &mapped.paddings}) {
    for (const StridedPiece& piece : *pieces) {
      CopyPiece(piece, FindSource(piece, sources), CopySource(piece, sources),
                sources.tensors[piece.dst], sources.bytes[piece.dst]);
    }
  }
}

// Tied elements are still equal and padding is zero if the conversion was
// right.
absl::Status CheckFits(const MappedTensors& mapped, const Filled& sources) {
  for (const auto* pieces : {&mapped.ties, &mapped.paddings}) {
    for (const StridedPiece& piece : *pieces) {
      Bytes expected = sources.bytes[piece.dst];
      CopyPiece(piece, FindSource(piece, sources), CopySource(piece, sources),
                sources.tensors[piece.dst], expected);
      if (expected == sources.bytes[piece.dst]) continue;
      return absl::DataLossError(absl::StrCat(
          sources.tensors[piece.dst].name, " of the other side differs from ",
          piece.src == StridedPiece::kZeros ? "zero"
                                            : sources.tensors[piece.src].name,
          ", which it has to equal for the way back"));
    }
  }
  return absl::OkStatus();
}

Filled Convert(const MappedTensors& mapped, const Filled& sources) {
  Filled made{.tensors = mapped.tensors, .bytes = {}};
  for (const MappingTensor& tensor : mapped.tensors) {
    made.bytes.emplace_back(NumBytes(tensor));
  }
  for (StridedPiece piece : mapped.pieces) {
    const bool is_zero = piece.src == StridedPiece::kZeros;
    // Bits are compared, so nothing is computed with them.
    if (!is_zero) piece.src = mapped.OriginalSource(piece.src);
    CopyPiece(piece, FindSource(piece, sources),
              is_zero ? Bytes() : sources.bytes[piece.src],
              made.tensors[piece.dst], made.bytes[piece.dst]);
  }
  return made;
}

absl::Status Compare(const Filled& sources, const Filled& back) {
  absl::flat_hash_map<absl::string_view, size_t> numbers;
  for (size_t i = 0; i < sources.tensors.size(); ++i) {
    numbers.emplace(sources.tensors[i].name, i);
  }
  for (size_t i = 0; i < back.tensors.size(); ++i) {
    const MappingTensor& tensor = back.tensors[i];
    const auto it = numbers.find(tensor.name);
    if (it == numbers.end() || !(sources.tensors[it->second] == tensor)) {
      return absl::DataLossError(
          absl::StrCat(tensor.name, " ", ShapeToString(tensor.shape),
                       " comes back, but was not there"));
    }
    const Bytes& was = sources.bytes[it->second];
    const auto differs = std::mismatch(
        was.begin(), was.end(), back.bytes[i].begin(), back.bytes[i].end());
    if (differs.first == was.end()) continue;
    return absl::DataLossError(
        absl::StrCat(tensor.name, " comes back with another element ",
                     static_cast<size_t>(differs.first - was.begin()) /
                         ElementSize(tensor.dtype),
                     " of ", Volume(tensor.shape)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MappingTrial> TryMapping(const Mapping& mapping,
                                        absl::Span<const MappingTensor> sources,
                                        const MapOptions& options,
                                        uint32_t seed) {
  DCP_RETURN_IF_ERROR(CheckSize(sources));
  DCP_ASSIGN_OR_RETURN(const MappedTensors there,
                       mapping.Map(sources, options));
  DCP_RETURN_IF_ERROR(CheckSize(there.tensors));
  MapOptions reversed = options;
  std::swap(reversed.from, reversed.to);
  const absl::StatusOr<MappedTensors> back =
      mapping.Map(there.tensors, reversed);
  if (!back.ok()) {
    return Annotate(back.status(), "on the way back from ", options.to);
  }
  Filled filled = Fill(sources, seed);
  MakeFit(there, filled);
  const Filled made = Convert(there, filled);
  DCP_RETURN_IF_ERROR(CheckFits(*back, made));
  DCP_RETURN_IF_ERROR(Compare(filled, Convert(*back, made)));
  MappingTrial trial{.num_made = there.tensors.size(), .num_bytes = 0};
  for (const Bytes& bytes : filled.bytes) trial.num_bytes += bytes.size();
  return trial;
}

}  // namespace dcp
