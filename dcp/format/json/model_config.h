// SPDX-License-Identifier: Apache-2.0
// Finds what a conversion changes in the config.json of a Hugging Face model,
// so that it can be replaced while every other byte stays. Pure; any thread.
#ifndef DCP_FORMAT_JSON_MODEL_CONFIG_H_
#define DCP_FORMAT_JSON_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

// A range of a text, in bytes.
struct TextRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The ranges in `json` that name floating-point types, such as "float32", as
// the values of "torch_dtype" (transformers before 5) and "dtype": without the
// quotation marks, in order, and only for the model itself, not for its parts.
// Empty if `json` is not a JSON object.
std::vector<TextRange> FindTensorTypes(absl::string_view json);

// The range of the key "quantization_config", its value and one comma, without
// which the model is not quantized; nullopt if `json` has no such key.
std::optional<TextRange> FindQuantization(absl::string_view json);

// A range of a text, and what replaces it.
struct TextEdit {
  TextRange range;
  std::string by;
};

// What gives "quantization_config" the value `value`, which is JSON, whether or
// not `json` has it; nullopt if `json` is not a JSON object.
std::optional<TextEdit> SetQuantization(absl::string_view json,
                                        absl::string_view value);

}  // namespace dcp

#endif  // DCP_FORMAT_JSON_MODEL_CONFIG_H_
