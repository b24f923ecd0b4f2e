// SPDX-License-Identifier: Apache-2.0
// Finds the parts of a Hugging Face model's config.json that a conversion
// changes, so that they can be replaced while every other byte stays. Pure; any
// thread.
#ifndef DCP_FORMAT_JSON_MODEL_CONFIG_EDITS_H_
#define DCP_FORMAT_JSON_MODEL_CONFIG_EDITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

// A range in a text, in bytes.
struct TextRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The ranges in `json` that name floating-point types, such as "float32", as
// the values of "torch_dtype" (transformers before 5) and "dtype": without the
// quotation marks, in order, and only for the model itself, not for submodels.
// Empty if `json` is not a JSON object.
std::vector<TextRange> FindTensorTypes(absl::string_view json);

// The range of the key "quantization_config", the value and one comma. Without
// them the model is not quantized; nullopt if `json` has no such key.
std::optional<TextRange> FindQuantization(absl::string_view json);

// A range in a text, and the replacement.
struct TextEdit {
  TextRange range;
  std::string by;
};

// The edit that sets "quantization_config" to `value`, which is JSON, whether
// or not `json` has the key; nullopt if `json` is not a JSON object.
std::optional<TextEdit> SetQuantization(absl::string_view json,
                                        absl::string_view value);

}  // namespace dcp

#endif  // DCP_FORMAT_JSON_MODEL_CONFIG_EDITS_H_
