// What config.json calls a model, by which the mappings for it are found. Pure;
// any thread.
#ifndef DCP_MAPPING_MODEL_TYPES_H_
#define DCP_MAPPING_MODEL_TYPES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

// The values of model_type at the top of the text and in its text_config, in
// this order, as far as they are there. InvalidArgument if it is not JSON.
absl::StatusOr<std::vector<std::string>> ModelTypesIn(absl::string_view config);

}  // namespace dcp

#endif  // DCP_MAPPING_MODEL_TYPES_H_
