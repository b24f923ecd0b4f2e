// SPDX-License-Identifier: Apache-2.0
// MappedBuilder: collects destinations and pieces while a mapping's rules are
// applied, and enforces the limits. For one conversion, on one thread.
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

  // Adds a destination and returns the number. FailedPrecondition if the name
  // exists.
  absl::StatusOr<uint32_t> AddTensor(MappingTensor tensor);
  const MappingTensor& tensor(uint32_t number) const {
    return result_.tensors[number];
  }

  // ResourceExhausted if `count` more pieces, ties and paddings would exceed
  // kMaxMappedPieces. Each must be announced.
  absl::Status Reserve(uint64_t count);
  // ResourceExhausted after kMaxNameComparisons.
  absl::Status CountComparisons(uint64_t count);

  // Adds a piece unless it is empty. Loops with a single step are left out, and
  // loops that continue each other on both sides are merged. InvalidArgument if
  // more than kMaxStridedLoops remain.
  absl::Status AddPiece(StridedPiece piece);
  absl::Status AddTie(StridedPiece piece);
  absl::Status AddPadding(StridedPiece piece);
  // Lets the pieces from number `first` on be computed: `from` is undone, and
  // `to` done. FailedPrecondition if a piece is zeros.
  absl::Status RescalePieces(size_t first, const Rescale& from,
                             const Rescale& to);
  // A source for pieces: `source`, with `from` undone and `to` done for each
  // element.
  uint32_t AddRescaled(uint32_t source, const Rescale& from, const Rescale& to);
  // Adds destination `from`'s pieces, from number `first` on, to destination
  // `to` too.
  absl::Status CopyPieces(size_t first, uint32_t from, uint32_t to);

  MappedTensors& result() { return result_; }
  // With tensors and pieces in order.
  MappedTensors Build() &&;

 private:
  MappedTensors result_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  // The entries in result_.rescaled for each source.
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> rescaled_;
  uint64_t num_reserved_ = 0;
  uint64_t num_comparisons_ = 0;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_BUILDER_H_
