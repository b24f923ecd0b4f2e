// SPDX-License-Identifier: Apache-2.0
// The conversions between programs that have results in tests/golden/mappings.
// Constant data; any thread.
#ifndef TESTS_DCP_MAPS_GOLDEN_PAIRS_H_
#define TESTS_DCP_MAPS_GOLDEN_PAIRS_H_

#include <ostream>
#include <string>
#include <vector>

#include "dcp/mapping/language/model_sizes.h"

namespace dcp::testing {

// A conversion of a model that transformers saved, and back.
struct GoldenPair {
  std::string mapping;
  std::string model;
  std::string side;
  // The other program's result, as golden files name it. Empty: no program
  // judged this, so only the way back counts.
  std::string judge;
  MappingSettings settings = {};
  // The file from transformers: "hf" or an optimizer's state.
  std::string file = "hf";
};

void PrintTo(const GoldenPair& pair, std::ostream* out);

const std::vector<GoldenPair>& GoldenPairs();

}  // namespace dcp::testing

#endif  // TESTS_DCP_MAPS_GOLDEN_PAIRS_H_
