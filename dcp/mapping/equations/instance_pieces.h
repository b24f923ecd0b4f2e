// SPDX-License-Identifier: Apache-2.0
// InstancePieces: makes one instance's destinations and pieces once the sizes
// are known. For equation.cc; one thread.
#ifndef DCP_MAPPING_EQUATIONS_INSTANCE_PIECES_H_
#define DCP_MAPPING_EQUATIONS_INSTANCE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/mapping/equations/equation_sides.h"
#include "dcp/mapping/equations/instance_sizes.h"
#include "dcp/mapping/equations/mapped_builder.h"
#include "dcp/mapping/language/axes.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"

namespace dcp {

class InstancePieces {
 public:
  // All must outlive this.
  InstancePieces(const MappingRule& rule, const EquationSides& sides,
                 const EquationInstance& instance, const InstanceSizes& sizes,
                 const EquationSources& sources, MappedBuilder& builder);

  // Adds everything to the builder; `to` is the destination side.
  // FailedPrecondition if a destination exists already, and ResourceExhausted
  // beyond a limit.
  absl::Status Make(const std::string& to);

 private:
  // One source summand and the equal destination summand.
  struct Pair {
    size_t src_term = 0;
    size_t dst_term = 0;
    const SummandWalk* src = nullptr;
    const SummandWalk* dst = nullptr;
  };
  // Index values, counted from 0.
  using Indices = std::vector<uint64_t>;

  absl::Status AddDestinations();
  absl::Status AddCopies(const std::string& to, size_t first_piece);
  absl::Status AddScalars();
  absl::Status AddPair(const Pair& pair);
  absl::Status AddConstant(const Pair& pair);
  absl::Status AddTensors(const Pair& pair);
  absl::Status AddTies(const Pair& pair, const Indices& stacked);
  absl::Status AddPaddings(const Pair& pair);
  StridedPiece MakePiece(const Pair& pair, const Indices& stacked,
                         const Indices& spread) const;
  // The number of a term's source for these stacked indices.
  uint32_t SourceAt(size_t term, const Indices& stacked) const;
  bool IsStacked(const std::string& axis) const;
  bool IsSpread(const std::string& axis) const;

  const MappingRule& rule_;
  const EquationSides& sides_;
  const EquationInstance& instance_;
  const InstanceSizes& sizes_;
  const EquationSources& sources_;
  MappedBuilder& builder_;
  Indices stacked_counts_;
  Indices spread_counts_;
  uint64_t num_stacked_ = 1;  // products of the counts above
  uint64_t num_spread_ = 1;
  // For each destination term, one for each value of the spread indices; empty
  // for a constant.
  std::vector<std::vector<uint32_t>> destinations_;
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_INSTANCE_PIECES_H_
