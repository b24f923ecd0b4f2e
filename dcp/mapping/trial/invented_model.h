// SPDX-License-Identifier: Apache-2.0
// InventedModel: small made-up tensors that fit a rule file, so that the file
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
  // A given config.json, which is not made up; empty: none.
  std::string config = {};
  MappingSettings settings = {};
  // An optimizer's state instead of a model.
  bool states = false;
  uint32_t seed = 0;
};

struct InventedModel {
  // Spelled as the pivot, by name.
  std::vector<MappingTensor> tensors;
  // The invention's settings, and a number for each key and param that
  // config.json lacks.
  MappingSettings settings = {};
};

// A tensor for each name and index value that the rules between the pivot and
// `invention.side` require, with made-up numbers up to 8 where neither the
// config nor the settings have one. The model has no tensors if no rule leads
// from one side to the other, or, for states, if one side does not name states.
//
// InvalidArgument if no such numbers satisfy the rule file's formulas;
// ResourceExhausted if the tensors would have more than kMaxInventedElements.
absl::StatusOr<InventedModel> InventModel(const Mapping& mapping,
                                          const Invention& invention);

}  // namespace dcp

#endif  // DCP_MAPPING_TRIAL_INVENTED_MODEL_H_
