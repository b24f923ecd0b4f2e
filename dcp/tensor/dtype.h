// SPDX-License-Identifier: Apache-2.0
// The element types in checkpoints, their sizes, and their names in torch, in
// torch.save's pickles and in safetensors. Pure; any thread. Sources for the
// names: torch/_utils.py, torch/storage.py and the safetensors format
// description.
#ifndef DCP_TENSOR_DTYPE_H_
#define DCP_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace dcp {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1FNX2,  // two elements per byte; sizes count bytes
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt64,
  kUInt32,
  kUInt16,
  kUInt8,
  kBool,
  kComplex32,
  kComplex64,
  kComplex128,
  kBits1x8,
  kBits2x4,
  kBits4x2,
  kBits8,
  kBits16,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kBits16) + 1;

// Bytes per element, 1 to 16.
uint64_t ElementSize(DType dtype);

// The number of bytes that are swapped together when the byte order changes:
// the element's size, or half that for complex types.
uint64_t ComponentSize(DType dtype);

bool IsFloatingPoint(DType dtype);  // including float8 and float4
bool IsComplex(DType dtype);

// "float32", "bfloat16", ...: the attribute in the module torch.
absl::string_view TorchName(DType dtype);
std::optional<DType> DTypeFromTorchName(absl::string_view name);

// "FloatStorage", ...: the typed storage class in the module torch; empty for
// types that have none and are stored as UntypedStorage.
absl::string_view StorageClassName(DType dtype);
std::optional<DType> DTypeFromStorageClassName(absl::string_view name);

// "F32", "BF16", ...; empty if safetensors has no such type.
absl::string_view SafetensorsName(DType dtype);
std::optional<DType> DTypeFromSafetensorsName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_TENSOR_DTYPE_H_
