// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/trial/round_trip.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/mapping/equations/mapped_composition.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/plan/strided/composition.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

bool IsIdentity(const StridedPiece& piece) {
  return piece.src_base == piece.dst_base &&
         std::all_of(piece.loops.begin(), piece.loops.end(),
                     [](const StridedLoop& loop) {
                       return loop.src_dim == loop.dst_dim &&
                              loop.src_step == loop.dst_step;
                     });
}

// Whether `equal` says, for every element that `piece` makes, that it equals
// the source element that `piece` takes.
bool Allows(const StridedPiece& equal, const StridedPiece& piece) {
  if ((equal.src == StridedPiece::kZeros) !=
      (piece.src == StridedPiece::kZeros)) {
    return false;
  }
  // The source elements that both take for the same destination.
  uint64_t num_allowed = 0;
  bool are_same = true;
  uint64_t max_steps = kMaxComposedSteps;
  const bool is_done = Compose(
      equal, piece, PieceSide::kDst, max_steps, [&](const StridedPiece& both) {
        are_same = are_same && both.src == both.dst && IsIdentity(both);
        num_allowed += NumElements(both);
      });
  return is_done && are_same && num_allowed == NumElements(piece);
}

class Checker {
 public:
  Checker(absl::Span<const MappingTensor> sources, const MappedTensors& there,
          const MappedTensors& back)
      : sources_(sources), back_(back) {
    for (uint32_t i = 0; i < sources.size(); ++i) {
      numbers_.emplace(sources[i].name, i);
    }
    left_out_.insert(there.dropped.begin(), there.dropped.end());
    for (const StridedPiece& tie : there.ties) {
      tied_.insert(tie.dst);
      equal_[tie.dst].push_back(tie);
    }
    for (const StridedPiece& padding : there.paddings) {
      equal_[padding.dst].push_back(padding);
    }
  }

  absl::Status Check(const MappedTensors& composed) {
    std::vector<uint32_t> source_of;  // by tensor that came back
    for (const MappingTensor& tensor : back_.tensors) {
      const auto it = numbers_.find(tensor.name);
      if (it == numbers_.end()) {
        return absl::DataLossError(
            absl::StrCat(tensor.name, " comes back, but was not there"));
      }
      const MappingTensor& source = sources_[it->second];
      if (source.dtype != tensor.dtype || source.shape != tensor.shape) {
        return absl::DataLossError(absl::StrCat(
            tensor.name, " was ", TorchName(source.dtype), " ",
            ShapeToString(source.shape), " and comes back as ",
            TorchName(tensor.dtype), " ", ShapeToString(tensor.shape)));
      }
      source_of.push_back(it->second);
    }
    for (const StridedPiece& piece : composed.pieces) {
      DCP_RETURN_IF_ERROR(CheckPiece(piece, source_of[piece.dst]));
    }
    return CheckComplete(source_of);
  }

  std::vector<std::string> LeftOut() const {
    return {left_out_.begin(), left_out_.end()};
  }

 private:
  // `number` is the source that became the piece's destination.
  absl::Status CheckPiece(const StridedPiece& piece, uint32_t number) const {
    if (piece.src == number && IsIdentity(piece)) return absl::OkStatus();
    const auto it = equal_.find(number);
    if (it != equal_.end() && std::any_of(it->second.begin(), it->second.end(),
                                          [&](const StridedPiece& equal) {
                                            return Allows(equal, piece);
                                          })) {
      return absl::OkStatus();
    }
    const Box box = FindBounds(piece, PieceSide::kDst);
    return absl::DataLossError(absl::StrCat(
        "the elements that come back as ", sources_[number].name, " between ",
        ShapeToString(box.offsets), " and ", ShapeToString(box.sizes),
        " elements further were ",
        piece.src == StridedPiece::kZeros
            ? std::string("not there")
            : absl::StrCat(
                  "elsewhere: in ", sources_[piece.src].name, " at ",
                  ShapeToString(FindBounds(piece, PieceSide::kSrc).offsets))));
  }

  // A source that did not come back must have been left out on purpose.
  absl::Status CheckComplete(const std::vector<uint32_t>& source_of) {
    std::vector<bool> is_back(sources_.size());
    for (const uint32_t number : source_of) is_back[number] = true;
    for (uint32_t i = 0; i < sources_.size(); ++i) {
      if (is_back[i] || left_out_.contains(sources_[i].name)) continue;
      if (tied_.contains(i)) {
        left_out_.insert(sources_[i].name);
        continue;
      }
      return absl::DataLossError(
          absl::StrCat(sources_[i].name, " does not come back"));
    }
    return absl::OkStatus();
  }

  const absl::Span<const MappingTensor> sources_;
  const MappedTensors& back_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  absl::flat_hash_set<uint32_t> tied_;
  // By source: which elements equal others, or are zero.
  absl::flat_hash_map<uint32_t, std::vector<StridedPiece>> equal_;
  std::set<std::string> left_out_;
};

}  // namespace

absl::StatusOr<RoundTrip> CheckRoundTrip(
    const Mapping& mapping, absl::Span<const MappingTensor> sources,
    const MapOptions& options) {
  DCP_ASSIGN_OR_RETURN(MappedTensors there, mapping.Map(sources, options));
  MapOptions return_options = options;
  std::swap(return_options.from, return_options.to);
  absl::StatusOr<MappedTensors> back =
      mapping.Map(there.tensors, return_options);
  if (!back.ok()) {
    return Annotate(back.status(), "on the way back from ", options.to);
  }
  RoundTrip result;
  result.num_made = there.tensors.size();
  result.num_pieces = there.pieces.size();
  Checker checker(sources, there, *back);
  DCP_ASSIGN_OR_RETURN(const MappedTensors composed,
                       ComposeMapped(there, *back));
  DCP_RETURN_IF_ERROR(checker.Check(composed));
  result.left_out = checker.LeftOut();
  return result;
}

}  // namespace dcp
