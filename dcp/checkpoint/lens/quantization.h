// SPDX-License-Identifier: Apache-2.0
// Quantization: which tensors in a checkpoint are codes or scales; their
// numbers mean something only together. They are recognised by their names, by
// torchao's data in the safetensors header, and by the model's config.json.
// Bits may be copied and cut as in any tensor, but nothing may compute with one
// of them alone: everything that casts, adds, or reorders elements asks the
// functions below.
#ifndef DCP_CHECKPOINT_LENS_QUANTIZATION_H_
#define DCP_CHECKPOINT_LENS_QUANTIZATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The rows and columns in a float8 block that can be decoded and encoded.
std::vector<int64_t> Float8Block();

// Whether elements may be a quantized model's codes: packed ones are integers.
bool MayBeCodes(DType dtype);

// Sets TensorEntry::quantization for the tensors in `parts`, which is the
// checkpoint at `path`, and adds a property that counts them. Looks for a
// config.json only if tensors with two or more dimensions may be codes.
// Blocking; any thread. Returns the errors from reading config.json.
absl::Status MarkQuantized(FileSystem& fs, absl::string_view path,
                           CheckpointParts& parts);

// OK unless the tensor is a part of a quantized one. FailedPrecondition names
// it, the scheme, `action`, such as "averaged", and the way out.
absl::Status CheckNotQuantized(absl::string_view name,
                               const TensorEntry& tensor,
                               absl::string_view action);

// Why the tensor's elements cannot become `to`, for messages that begin with
// the tensor's name: "is stored as ..."; empty if they can.
std::string WhyNotCast(const TensorEntry& tensor, DType to);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_QUANTIZATION_H_
