// SPDX-License-Identifier: Apache-2.0
// MappedTensors: the result of a mapping: the tensors on the other side, and
// the source element for each of their elements. Plain data; any thread.
// Mapping::Map makes it.
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

// A tensor's name, type and shape, without elements.
struct MappingTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims shape;

  friend bool operator==(const MappingTensor&, const MappingTensor&) = default;
};

// How a rule moves its tensors' elements.
enum class RuleClass : uint8_t {
  kBox,         // in runs, in the order in which the source has them
  kStrided,     // in another order, or one by one
  kArithmetic,  // they are computed from stored ones
};

// The effect of one rule. A rule that was not used has no report.
struct RuleReport {
  std::string file;
  int line = 0;
  // "a.{i}.q, a.{i}.k -> b.{i}.qk": the names as the rule file has them.
  std::string text;
  // "[32, 8], [8, 8] -> [40, 8]": the shapes of the first tensors that it was
  // applied to; a single one if they keep their shape.
  std::string shapes;
  // The class of the piece that differs most from copying boxes. A mapping does
  // not know the computations before and after the rules apply; MapEntries adds
  // it.
  RuleClass rule_class = RuleClass::kBox;
  uint64_t num_instances = 0;  // how often it was applied
  uint64_t num_sources = 0;    // tensors
  uint64_t num_destinations = 0;
  uint64_t num_pieces = 0;
  uint64_t num_bytes = 0;  // in the destinations; the largest number if beyond
  // The rule's source numbers, in the order given to Map, without sources that
  // only have to equal another, and the rule's destination numbers. Between two
  // sides that are not the pivot, a rule from the first to the pivot has no
  // destinations, and a rule from the pivot to the second has no sources.
  std::vector<uint32_t> sources;
  std::vector<uint32_t> destinations;
};

struct MappedTensors {
  // The destinations, by name.
  std::vector<MappingTensor> tensors;
  // By destination. Together they write every destination element once. `src`
  // is kZeros, or a source's number in the order given to Map, or, from
  // num_sources on, an entry in `rescaled`; `dst` is an index into `tensors`.
  std::vector<StridedPiece> pieces;
  uint32_t num_sources = 0;
  // Sources with elements that are computed. Each is there once.
  std::vector<RescaledSource> rescaled;
  // Pairs that a rule declares equal: both numbers are sources, and every
  // element in the second equals the first's, bit for bit. If not, the
  // destination would lose data.
  std::vector<StridedPiece> ties;
  // Elements that a rule leaves out as padding: `src` is kZeros and `dst` a
  // source's number. They need not really be zero.
  std::vector<StridedPiece> paddings;

  // Names that rules require, and that were missing with permission.
  std::vector<std::string> missing;
  std::vector<std::string> dropped;  // sources without a destination, by name
  std::vector<std::string> copied;   // destinations that equal another, by name
  std::vector<std::string> kept;     // destinations that no rule made, by name
  std::vector<RuleReport> rules;     // in the file's order
  // The keys of config.json that were used, and their values.
  std::map<std::string, int64_t> config;

  // The source that a piece with this `src`, which is not kZeros, takes
  // elements from.
  uint32_t OriginalSource(uint32_t src) const {
    return src < num_sources ? src : rescaled[src - num_sources].source;
  }
};

}  // namespace dcp

#endif  // DCP_MAPPING_EQUATIONS_MAPPED_TENSORS_H_
