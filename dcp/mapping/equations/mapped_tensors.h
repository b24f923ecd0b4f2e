// SPDX-License-Identifier: Apache-2.0
// MappedTensors: what a mapping makes of a checkpoint's tensors: which ones
// there are on the other side, and of which elements of the sources each of
// theirs is. Plain data; any thread. Mapping::Map makes it.
#ifndef DCP_MAPPING_EQUATIONS_MAPPED_TENSORS_H_
#define DCP_MAPPING_EQUATIONS_MAPPED_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dcp/mapping/language/rescale.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// A tensor without its elements.
struct MappingTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims shape;

  friend bool operator==(const MappingTensor&, const MappingTensor&) = default;
};

// How the elements of a rule's tensors move.
enum class RuleClass : uint8_t {
  kBox,         // in runs, in the order in which the source has them
  kStrided,     // in another order, or one by one
  kArithmetic,  // they are computed from stored ones
};

// What one rule did. A rule that was not used has no report.
struct RuleReport {
  std::string file;
  int line = 0;
  // "a.{i}.q, a.{i}.k -> b.{i}.qk": the names as the rule file has them.
  std::string text;
  // "[32, 8], [8, 8] -> [40, 8]": those of the first tensors that it was
  // applied to; one alone if they keep their shape.
  std::string shapes;
  // The class of the piece that is furthest from a copy of boxes. A mapping
  // does not know what is computed before and after the rules apply; MapEntries
  // adds it.
  RuleClass rule_class = RuleClass::kBox;
  uint64_t num_instances = 0;  // how often it was applied
  uint64_t num_sources = 0;    // tensors
  uint64_t num_destinations = 0;
  uint64_t num_pieces = 0;
  uint64_t num_bytes = 0;  // of the destinations; the largest number if beyond
  // The numbers of its sources, in the order given to Map, apart from those
  // that only have to equal another, and of its destinations. Between two sides
  // that are not the pivot, a rule from the first of them to the pivot has no
  // destinations, and one from the pivot to the second no sources.
  std::vector<uint32_t> sources;
  std::vector<uint32_t> destinations;
};

struct MappedTensors {
  // The destinations, by name.
  std::vector<MappingTensor> tensors;
  // By destination. Together they write every element of every destination
  // once. `src` is kZeros, a number of a source, in the order given to Map, or
  // from num_sources on one of `rescaled`; and `dst` a number of `tensors`.
  std::vector<StridedPiece> pieces;
  uint32_t num_sources = 0;
  // Sources with whose elements something is computed. Each is there once.
  std::vector<RescaledSource> rescaled;
  // What a rule says is equal in the source: both numbers are of sources, and
  // every element of the second is that of the first, bit for bit. If it is
  // not, the destination would lose something.
  std::vector<StridedPiece> ties;
  // What a rule leaves out because it is zero: `src` is kZeros and `dst` a
  // number of a source. Padding; it need not really be zero.
  std::vector<StridedPiece> paddings;

  // What rules require, was missing, and was allowed to be, by name.
  std::vector<std::string> missing;
  std::vector<std::string> dropped;  // sources without a destination, by name
  std::vector<std::string> copied;   // destinations that equal another, by name
  std::vector<std::string> kept;     // destinations that no rule made, by name
  std::vector<RuleReport> rules;     // in the order of the file
  // The keys of config.json that were used, and their values.
  std::map<std::string, int64_t> config;

  // The source that a piece with this `src`, which is not kZeros, takes
  // elements from.
  uint32_t SourceOf(uint32_t src) const {
    return src < num_sources ? src : rescaled[src - num_sources].source;
  }
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_TENSORS_H_
