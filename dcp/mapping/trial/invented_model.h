// SPDX-License-Identifier: Apache-2.0
// InventedModel: small tensors that a rule file is about, made up, so that it
// can be tried without a model. Pure; any thread.
#ifndef DCP_MAPPING_TRIAL_INVENTED_MODEL_H_
#define DCP_MAPPING_TRIAL_INVENTED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/mapping/language/model_sizes.h"

namespace dcp {

struct Invention {
  // The other side; the tensors are spelled as the pivot.
  std::string side;
  // What is not to be made up; empty: nothing.
  std::string config = {};
  MappingSettings settings = {};
  // The state of an optimizer instead of a model.
  bool states = false;
  uint32_t seed = 0;
};

struct InventedModel {
  // Spelled as the pivot, by name.
  std::vector<MappingTensor> tensors;
  // Those of the invention, and a number for each key of config.json and each
  // param that it lacks.
  MappingSettings settings = {};
};

// A tensor for each name and each value of an index that the rules between the
// pivot and `invention.side` ask for, with numbers up to 8 for what neither the
// config nor the settings say. The model has no tensors if no rule leads
// from one side to the other, or, for states, if one of them does not name
// states.
//
// InvalidArgument if no such numbers satisfy the formulas of the rule file;
// ResourceExhausted if the tensors would have more than kMaxInventedElements.
absl::StatusOr<InventedModel> InventModel(const Mapping& mapping,
                                          const Invention& invention);

}  // namespace dcp

#endif  // DCP_MAPPING_TRIAL_INVENTED_MODEL_H_
