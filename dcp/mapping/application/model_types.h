// SPDX-License-Identifier: Apache-2.0
// A model's types according to config.json. They select the mapping. Pure; any
// thread.
#ifndef DCP_MAPPING_APPLICATION_MODEL_TYPES_H_
#define DCP_MAPPING_APPLICATION_MODEL_TYPES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

// model_type at the top level and in text_config, and the first class in
// `architectures`, in this order, as far as they are there. InvalidArgument if
// the text is not JSON.
absl::StatusOr<std::vector<std::string>> ModelTypesIn(absl::string_view config);

// Whether one entry in `types` is `model_type`, either literally or as a class:
// DeepseekV3ForCausalLM is deepseek_v3, even if a program with its own code
// uses a different model_type.
bool IsModelType(absl::Span<const std::string> types,
                 absl::string_view model_type);

// InvalidArgument, naming both, if config.json's model type is not among
// `model_types`, the types for the mapping named `mapping`. OK if either is
// unknown.
absl::Status CheckModelType(absl::string_view mapping,
                            absl::Span<const std::string> model_types,
                            absl::string_view config);

}  // namespace dcp

#endif  // DCP_MAPPING_APPLICATION_MODEL_TYPES_H_
