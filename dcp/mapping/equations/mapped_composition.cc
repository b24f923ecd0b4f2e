// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/equations/mapped_composition.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/mapping/equations/mapped_builder.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/plan/chunk_index.h"
#include "dcp/plan/strided/composition.h"

namespace dcp {
namespace {

// Sorts the loops as the rules make them, so that loops that continue each
// other are neighbours.
void SortLoops(StridedPiece& piece) {
  std::sort(piece.loops.begin(), piece.loops.end(),
            [](const StridedLoop& a, const StridedLoop& b) {
              return a.dst_dim != b.dst_dim ? a.dst_dim < b.dst_dim
                                            : a.dst_step > b.dst_step;
            });
}

// A loop with no step on either side visits the same elements again.
void DropIdleLoops(StridedPiece& piece) {
  piece.loops.erase(std::remove_if(piece.loops.begin(), piece.loops.end(),
                                   [](const StridedLoop& loop) {
                                     return loop.src_dim < 0 &&
                                            loop.dst_dim < 0;
                                   }),
                    piece.loops.end());
}

// Whether a tie says that elements equal themselves.
bool IsTrivial(const StridedPiece& tie) {
  return tie.src == tie.dst && tie.src_base == tie.dst_base &&
         std::all_of(tie.loops.begin(), tie.loops.end(),
                     [](const StridedLoop& loop) {
                       return loop.src_dim == loop.dst_dim &&
                              loop.src_step == loop.dst_step;
                     });
}

class Composer {
 public:
  Composer(MappedTensors first, MappedTensors second)
      : first_(std::move(first)),
        second_(std::move(second)),
        builder_(first_.num_sources) {
    // The pieces come by destination.
    size_t next = 0;
    for (uint32_t i = 0; i < first_.tensors.size(); ++i) {
      Made& made = made_.emplace_back();
      made.first = next;
      for (; next < first_.pieces.size() && first_.pieces[next].dst == i;
           ++next) {
        made.bounds.push_back(FindBounds(first_.pieces[next], PieceSide::kDst));
      }
    }
  }

  absl::StatusOr<MappedTensors> Run() {
    MappedTensors& result = builder_.result();
    for (MappingTensor& tensor : second_.tensors) {
      DCP_RETURN_IF_ERROR(builder_.AddTensor(std::move(tensor)).status());
    }
    for (const StridedPiece& piece : second_.pieces) {
      DCP_RETURN_IF_ERROR(AddPieces(piece));
    }
    DCP_RETURN_IF_ERROR(AddTies());
    DCP_RETURN_IF_ERROR(AddPaddings());
    result.dropped = std::move(first_.dropped);
    result.dropped.insert(result.dropped.end(), second_.dropped.begin(),
                          second_.dropped.end());
    result.missing = std::move(first_.missing);
    result.missing.insert(result.missing.end(), second_.missing.begin(),
                          second_.missing.end());
    result.copied = std::move(second_.copied);
    result.kept = std::move(second_.kept);
    for (RuleReport& rule : first_.rules) rule.destinations.clear();
    for (RuleReport& rule : second_.rules) rule.sources.clear();
    result.rules = std::move(first_.rules);
    result.rules.insert(result.rules.end(), second_.rules.begin(),
                        second_.rules.end());
    result.config = std::move(first_.config);
    result.config.insert(second_.config.begin(), second_.config.end());
    return std::move(builder_).Build();
  }

 private:
  // The pieces that make a tensor in the middle.
  struct Made {
    size_t first = 0;  // the position in first_.pieces
    std::vector<Box> bounds;
    std::unique_ptr<ChunkIndex> index;  // for `bounds`, created when needed
  };

  // Composes `piece` with each of the first conversion's pieces that make
  // `piece.src`, or, for kDst, `piece.dst`, and calls `visit` with each result.
  absl::Status ForEachComposed(
      const StridedPiece& piece, PieceSide side,
      absl::FunctionRef<absl::Status(StridedPiece composed)> visit) {
    Made& made = made_[side == PieceSide::kSrc ? piece.src : piece.dst];
    if (made.index == nullptr) {
      made.index = std::make_unique<ChunkIndex>(made.bounds);
    }
    absl::Status status;
    made.index->ForEachOverlap(
        FindBounds(piece, side), [&](size_t number, const Box& /*overlap*/) {
          if (!status.ok()) return;
          const bool is_done =
              Compose(first_.pieces[made.first + number], piece, side,
                      num_steps_left_, [&](const StridedPiece& part) {
                        if (!status.ok()) return;
                        status = builder_.Reserve(1);
                        if (status.ok()) status = visit(part);
                      });
          if (!is_done && status.ok()) {
            status = absl::ResourceExhaustedError(
                absl::StrCat("one conversion after the other takes more than ",
                             kMaxComposedSteps, " steps; do them one by one"));
          }
        });
    return status;
  }

  absl::Status AddPieces(const StridedPiece& piece) {
    if (piece.src == StridedPiece::kZeros) {
      DCP_RETURN_IF_ERROR(builder_.Reserve(1));
      return builder_.AddPiece(piece);
    }
    StridedPiece of_middle = piece;
    of_middle.src = second_.OriginalSource(piece.src);
    return ForEachComposed(
        of_middle, PieceSide::kSrc, [&](StridedPiece composed) -> absl::Status {
          SortLoops(composed);
          DCP_ASSIGN_OR_RETURN(
              composed.src,
              RescaledTwice(composed.src, RescaledBy(second_, piece.src)));
          return builder_.AddPiece(std::move(composed));
        });
  }

  static RescaledSource RescaledBy(const MappedTensors& mapped, uint32_t src) {
    if (src == StridedPiece::kZeros || src < mapped.num_sources) {
      return {.source = src, .from = {}, .to = {}};
    }
    return mapped.rescaled[src - mapped.num_sources];
  }

  // A piece's source: the first conversion's source for `src`, rescaled as the
  // second says.
  absl::StatusOr<uint32_t> RescaledTwice(uint32_t src,
                                         const RescaledSource& then) {
    const RescaledSource before = RescaledBy(first_, src);
    // In between are the numbers of the pivot, or those of one other side.
    if (!(before.to == then.from)) {
      return absl::FailedPreconditionError(
          "the two conversions scale the same tensor, or add to it, in "
          "different ways; do them one by one");
    }
    if (before.from == then.to) return before.source;
    if (before.source == StridedPiece::kZeros) {
      return absl::FailedPreconditionError(
          "zeros of a rule cannot be scaled or added to; do the conversions "
          "one by one");
    }
    return builder_.AddRescaled(before.source, before.from, then.to);
  }

  // Both sides of a tie from the second are tensors in the middle.
  absl::Status AddTies() {
    builder_.result().ties = std::move(first_.ties);
    DCP_RETURN_IF_ERROR(builder_.Reserve(builder_.result().ties.size()));
    for (const StridedPiece& tie : second_.ties) {
      DCP_RETURN_IF_ERROR(ForEachComposed(
          tie, PieceSide::kSrc, [&](const StridedPiece& from_source) {
            return ForEachComposed(from_source, PieceSide::kDst,
                                   [&](StridedPiece reversed) {
                                     return AddTie(std::move(reversed));
                                   });
          }));
    }
    return absl::OkStatus();
  }

  absl::Status AddTie(StridedPiece reversed) {
    StridedPiece tie = std::move(reversed);
    std::swap(tie.src, tie.dst);
    std::swap(tie.src_base, tie.dst_base);
    for (StridedLoop& loop : tie.loops) {
      std::swap(loop.src_dim, loop.dst_dim);
      std::swap(loop.src_step, loop.dst_step);
    }
    const bool src_is_zero = tie.src == StridedPiece::kZeros;
    if (src_is_zero != (tie.dst == StridedPiece::kZeros)) {
      return absl::FailedPreconditionError(
          "zeros that a rule writes would have to equal a tensor of the "
          "source; convert in two steps");
    }
    if (src_is_zero) return absl::OkStatus();
    DropIdleLoops(tie);
    return IsTrivial(tie) ? absl::OkStatus() : builder_.AddTie(std::move(tie));
  }

  absl::Status AddPaddings() {
    builder_.result().paddings = std::move(first_.paddings);
    DCP_RETURN_IF_ERROR(builder_.Reserve(builder_.result().paddings.size()));
    for (const StridedPiece& padding : second_.paddings) {
      DCP_RETURN_IF_ERROR(
          ForEachComposed(padding, PieceSide::kDst, [&](StridedPiece composed) {
            if (composed.src == StridedPiece::kZeros) return absl::OkStatus();
            // The loops walk only the source, which becomes the padded tensor,
            // in `dst`.
            composed.dst = std::exchange(composed.src, StridedPiece::kZeros);
            composed.dst_base = std::exchange(composed.src_base, {});
            for (StridedLoop& loop : composed.loops) {
              loop.dst_dim = std::exchange(loop.src_dim, -1);
              loop.dst_step = std::exchange(loop.src_step, 0);
            }
            DropIdleLoops(composed);
            return builder_.AddPadding(std::move(composed));
          }));
    }
    return absl::OkStatus();
  }

  MappedTensors first_;
  MappedTensors second_;
  std::vector<Made> made_;  // by tensor in the middle
  MappedBuilder builder_;
  uint64_t num_steps_left_ = kMaxComposedSteps;
};

}  // namespace

absl::StatusOr<MappedTensors> ComposeMapped(MappedTensors first,
                                            MappedTensors second) {
  return Composer(std::move(first), std::move(second)).Run();
}

}  // namespace dcp
