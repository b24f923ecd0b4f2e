// SPDX-License-Identifier: Apache-2.0
// DiffReport: the differences between two checkpoints. Plain data.
#ifndef DCP_CHECKPOINT_DIFF_DIFF_REPORT_H_
#define DCP_CHECKPOINT_DIFF_DIFF_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "dcp/tensor/box.h"
#include "dcp/tensor/element.h"

namespace dcp {

struct DiffFinding {
  enum class Kind : uint8_t {
    kOnlyInA,
    kOnlyInB,
    kKind,  // a tensor on one side, an object on the other
    kShape,
    kDType,   // values are not compared then
    kValues,  // `difference` says how far
    kObject,
    kContainer,  // another type, key types or attributes
  };
  Kind kind;
  std::string name;
  std::string in_a;  // shape, dtype or value as text, if that helps
  std::string in_b;
  ElementDifference difference;
  uint64_t num_elements = 0;
  // The first different element's index in each dimension; empty for a scalar.
  Dims first_index = {};
};

struct DiffReport {
  uint64_t num_tensors_equal = 0;
  uint64_t num_objects_equal = 0;
  uint64_t bytes_compared = 0;
  std::vector<DiffFinding> findings;  // empty: equal
  // A's and B's losses in the compared parts, each with "A: " or "B: " in
  // front; see SourceLoss.
  std::vector<std::string> warnings;
  // Why containers and key types were not compared; empty if they were.
  std::string containers_skipped;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIFF_DIFF_REPORT_H_
