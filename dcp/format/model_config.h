// What the config.json of a Hugging Face model says of the type of its tensors,
// found so that it can be replaced and every other byte stays. Pure; any
// thread.
#ifndef DCP_FORMAT_MODEL_CONFIG_H_
#define DCP_FORMAT_MODEL_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace dcp {

// A stretch of a text, bytes.
struct TextRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The names of floating-point types, "float32", that `json` has as its
// "torch_dtype" (of transformers before 5) and its "dtype", without their
// quotation marks, in their order; those of the model itself, not of its parts.
// None where it is not the JSON of an object.
std::vector<TextRange> FindTensorTypes(absl::string_view json);

}  // namespace dcp

#endif  // DCP_FORMAT_MODEL_CONFIG_H_
