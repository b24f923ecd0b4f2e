// SPDX-License-Identifier: Apache-2.0
// MappedBuilder: collects destinations and pieces while the rules of a mapping
// are applied, within their limits. For one conversion, on one thread.
#ifndef DCP_MAPPING_EQUATIONS_MAPPED_BUILDER_H_
#define DCP_MAPPING_EQUATIONS_MAPPED_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/rescale.h"
#include "dcp/plan/strided/strided_piece.h"

namespace dcp {

class MappedBuilder {
 public:
  explicit MappedBuilder(uint32_t num_sources) {
    result_.num_sources = num_sources;
  }

  // Adds a destination and returns its number. FailedPrecondition if there is
  // one of that name.
  absl::StatusOr<uint32_t> AddTensor(MappingTensor tensor);
  const MappingTensor& tensor(uint32_t number) const {
    return result_.tensors[number];
  }

  // ResourceExhausted if `count` more pieces, ties and paddings would exceed
  // kMaxMappedPieces. Each must be announced.
  absl::Status Reserve(uint64_t count);
  // ResourceExhausted after kMaxNameComparisons.
  absl::Status CountComparisons(uint64_t count);

  // Add a piece without loops of one step, with loops that continue each other
  // on both sides merged, unless it is empty. InvalidArgument if more than
  // kMaxStridedLoops remain.
  absl::Status AddPiece(StridedPiece piece);
  absl::Status AddTie(StridedPiece piece);
  absl::Status AddPadding(StridedPiece piece);
  // Has the pieces from number `first` on computed: `from` is undone, and `to`
  // done. FailedPrecondition if one of them is of zeros.
  absl::Status RescalePieces(size_t first, const Rescale& from,
                             const Rescale& to);
  // A source of pieces: `source`, of whose elements `from` is undone and `to`
  // done.
  uint32_t AddRescaled(uint32_t source, const Rescale& from, const Rescale& to);
  // Adds the pieces of destination `from`, of those from number `first` on,
  // for destination `to` too.
  absl::Status CopyPieces(size_t first, uint32_t from, uint32_t to);

  MappedTensors& result() { return result_; }
  // With tensors and pieces in order.
  MappedTensors Build() &&;

 private:
  MappedTensors result_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  // The numbers of those in result_.rescaled that one source has.
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> rescaled_;
  uint64_t num_reserved_ = 0;
  uint64_t num_comparisons_ = 0;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_BUILDER_H_
