// SPDX-License-Identifier: Apache-2.0
// What config.json calls a model, by which the mappings for it are found. Pure;
// any thread.
#ifndef DCP_MAPPING_APPLICATION_MODEL_TYPES_H_
#define DCP_MAPPING_APPLICATION_MODEL_TYPES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// The values of model_type at the top of the text and in its text_config, and
// the class that `architectures` names first, in this order, as far as they are
// there. InvalidArgument if it is not JSON.
absl::StatusOr<std::vector<std::string>> ModelTypesIn(absl::string_view config);

// Whether one of these is `model_type`, by itself or as the name of a class:
// DeepseekV3ForCausalLM is deepseek_v3, whatever model_type a program that has
// code of its own gives it.
bool IsModelType(absl::Span<const std::string> types,
                 absl::string_view model_type);

// InvalidArgument, with both, if config.json says that the model is of a type
// that is not among `model_types`, those of the mapping called `mapping`. OK if
// one of both says nothing.
absl::Status CheckModelType(absl::string_view mapping,
                            absl::Span<const std::string> model_types,
                            absl::string_view config);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_MODEL_TYPES_H_
