// SPDX-License-Identifier: Apache-2.0
// A scalar's value, in the spellings that configs use. Pure; any thread.
#ifndef CONFIG_DOCUMENT_SCALAR_H_
#define CONFIG_DOCUMENT_SCALAR_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "config/document/document.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::config {

// Each returns nothing if the scalar has another kind.
std::optional<bool> AsBool(const Node& node);
std::optional<int64_t> AsInteger(const Node& node);  // also "1e8", "1_000"
std::optional<double> AsReal(const Node& node);

// float32, fp32, bfloat16, bf16, float16, fp16, half, and torch.float32 etc.
std::optional<dcp::DType> DtypeNamed(absl::string_view name);

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_SCALAR_H_
