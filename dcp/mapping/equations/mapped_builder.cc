// SPDX-License-Identifier: Apache-2.0
// Collects destinations and pieces, and merges loops that continue each other.
// Tested by tests/dcp/mapping/application/mapping_test.cc.
#include "dcp/mapping/equations/mapped_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// Whether `inner` goes on where one step of `outer` begins.
bool Continues(const StridedLoop& outer, const StridedLoop& inner) {
  return outer.src_dim == inner.src_dim && outer.dst_dim == inner.dst_dim &&
         outer.src_step == inner.src_step * inner.count &&
         outer.dst_step == inner.dst_step * inner.count;
}

// False if the piece is empty.
absl::StatusOr<bool> Simplify(StridedPiece& piece) {
  auto kept = piece.loops.begin();
  for (const StridedLoop& loop : piece.loops) {
    if (loop.count == 0) return false;
    if (loop.count == 1) continue;
    if (kept != piece.loops.begin() && Continues(*(kept - 1), loop)) {
      StridedLoop& outer = *(kept - 1);
      outer.count *= loop.count;
      outer.src_step = loop.src_step;
      outer.dst_step = loop.dst_step;
    } else {
      *kept++ = loop;
    }
  }
  piece.loops.erase(kept, piece.loops.end());
  if (piece.loops.size() > kMaxStridedLoops) {
    return absl::InvalidArgumentError(
        absl::StrCat("a summand rearranges ", piece.loops.size(),
                     " axes, more than ", kMaxStridedLoops));
  }
  return true;
}

absl::Status Add(StridedPiece piece, std::vector<StridedPiece>& pieces) {
  DCP_ASSIGN_OR_RETURN(const bool is_needed, Simplify(piece));
  if (is_needed) pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint32_t> MappedBuilder::AddTensor(MappingTensor tensor) {
  const uint32_t number = static_cast<uint32_t>(result_.tensors.size());
  if (!numbers_.emplace(tensor.name, number).second) {
    return absl::FailedPreconditionError(
        absl::StrCat(tensor.name, " is made twice"));
  }
  DCP_RETURN_IF_ERROR(Reserve(1));
  result_.tensors.push_back(std::move(tensor));
  return number;
}

absl::Status MappedBuilder::Reserve(uint64_t count) {
  if (count <= kMaxMappedPieces - num_reserved_) {
    num_reserved_ += count;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the tensors and their pieces exceed ", kMaxMappedPieces));
}

absl::Status MappedBuilder::CountComparisons(uint64_t count) {
  if (count <= kMaxNameComparisons - num_comparisons_) {
    num_comparisons_ += count;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the rules compare more than ", kMaxNameComparisons,
                   " names; let their names begin with a text"));
}

absl::Status MappedBuilder::AddPiece(StridedPiece piece) {
  return Add(std::move(piece), result_.pieces);
}

absl::Status MappedBuilder::AddTie(StridedPiece piece) {
  return Add(std::move(piece), result_.ties);
}

absl::Status MappedBuilder::AddPadding(StridedPiece piece) {
  return Add(std::move(piece), result_.paddings);
}

absl::Status MappedBuilder::RescalePieces(size_t first, const Rescale& from,
                                          const Rescale& to) {
  if (from == to) return absl::OkStatus();
  for (size_t i = first; i < result_.pieces.size(); ++i) {
    StridedPiece& piece = result_.pieces[i];
    if (piece.src == StridedPiece::kZeros) {
      return absl::FailedPreconditionError(
          "zeros of a rule cannot be scaled or added to");
    }
    piece.src = AddRescaled(piece.src, from, to);
  }
  return absl::OkStatus();
}

uint32_t MappedBuilder::AddRescaled(uint32_t source, const Rescale& from,
                                    const Rescale& to) {
  const RescaledSource wanted{.source = source, .from = from, .to = to};
  std::vector<uint32_t>& numbers = rescaled_[source];
  for (const uint32_t number : numbers) {
    if (result_.rescaled[number] == wanted) {
      return result_.num_sources + number;
    }
  }
  numbers.push_back(static_cast<uint32_t>(result_.rescaled.size()));
  result_.rescaled.push_back(wanted);
  return result_.num_sources + numbers.back();
}

absl::Status MappedBuilder::CopyPieces(size_t first, uint32_t from,
                                       uint32_t to) {
  const size_t end = result_.pieces.size();
  for (size_t i = first; i < end; ++i) {
    if (result_.pieces[i].dst != from) continue;
    DCP_RETURN_IF_ERROR(Reserve(1));
    StridedPiece copy = result_.pieces[i];
    copy.dst = to;
    result_.pieces.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

MappedTensors MappedBuilder::Build() && {
  std::vector<uint32_t> order(result_.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return result_.tensors[a].name < result_.tensors[b].name;
  });
  std::vector<MappingTensor> sorted;
  std::vector<uint32_t> place(order.size());
  for (const uint32_t number : order) {
    place[number] = static_cast<uint32_t>(sorted.size());
    sorted.push_back(std::move(result_.tensors[number]));
  }
  result_.tensors = std::move(sorted);
  for (StridedPiece& piece : result_.pieces) piece.dst = place[piece.dst];
  for (RuleReport& rule : result_.rules) {
    for (uint32_t& number : rule.destinations) number = place[number];
    std::sort(rule.destinations.begin(), rule.destinations.end());
  }
  std::stable_sort(result_.pieces.begin(), result_.pieces.end(),
                   [](const StridedPiece& a, const StridedPiece& b) {
                     return a.dst < b.dst;
                   });
  for (std::vector<std::string>* names :
       {&result_.missing, &result_.dropped, &result_.copied, &result_.kept}) {
    std::sort(names->begin(), names->end());
  }
  return std::move(result_);
}

}  // namespace dcp
