// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/dtype.h"

#include <array>
#include <cstddef>

#include "dcp/base/check.h"

namespace dcp {
namespace {

enum class Class : uint8_t { kFloat, kInteger, kComplex, kBits };

struct Row {
  DType dtype;
  uint8_t size;
  Class kind;
  absl::string_view torch;
  absl::string_view storage;
  absl::string_view safetensors;
};

// In the enumeration's order.
const std::array<Row, kNumDTypes>& Table() {
  using enum DType;
  using enum Class;
  static constexpr std::array<Row, kNumDTypes> kRows = {{
      {kFloat64, 8, kFloat, "float64", "DoubleStorage", "F64"},
      {kFloat32, 4, kFloat, "float32", "FloatStorage", "F32"},
      {kFloat16, 2, kFloat, "float16", "HalfStorage", "F16"},
      {kBFloat16, 2, kFloat, "bfloat16", "BFloat16Storage", "BF16"},
      {kFloat8E4M3FN, 1, kFloat, "float8_e4m3fn", "", "F8_E4M3"},
      {kFloat8E5M2, 1, kFloat, "float8_e5m2", "", "F8_E5M2"},
      {kFloat8E4M3FNUZ, 1, kFloat, "float8_e4m3fnuz", "", "F8_E4M3FNUZ"},
      {kFloat8E5M2FNUZ, 1, kFloat, "float8_e5m2fnuz", "", "F8_E5M2FNUZ"},
      {kFloat8E8M0FNU, 1, kFloat, "float8_e8m0fnu", "", "F8_E8M0"},
      {kFloat4E2M1FNX2, 1, kFloat, "float4_e2m1fn_x2", "", "F4"},
      {kInt64, 8, kInteger, "int64", "LongStorage", "I64"},
      {kInt32, 4, kInteger, "int32", "IntStorage", "I32"},
      {kInt16, 2, kInteger, "int16", "ShortStorage", "I16"},
      {kInt8, 1, kInteger, "int8", "CharStorage", "I8"},
      {kUInt64, 8, kInteger, "uint64", "", "U64"},
      {kUInt32, 4, kInteger, "uint32", "", "U32"},
      {kUInt16, 2, kInteger, "uint16", "", "U16"},
      {kUInt8, 1, kInteger, "uint8", "ByteStorage", "U8"},
      {kBool, 1, kInteger, "bool", "BoolStorage", "BOOL"},
      {kComplex32, 4, kComplex, "complex32", "", ""},
      {kComplex64, 8, kComplex, "complex64", "ComplexFloatStorage", "C64"},
      {kComplex128, 16, kComplex, "complex128", "ComplexDoubleStorage", ""},
      {kBits1x8, 1, kBits, "bits1x8", "", ""},
      {kBits2x4, 1, kBits, "bits2x4", "", ""},
      {kBits4x2, 1, kBits, "bits4x2", "", ""},
      {kBits8, 1, kBits, "bits8", "", ""},
      {kBits16, 2, kBits, "bits16", "", ""},
  }};
  return kRows;
}

const Row& FindRow(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  DCP_CHECK(index < Table().size(), "dtype ", index);
  const Row& row = Table()[index];
  DCP_DCHECK(row.dtype == dtype, "the table is out of order at ", index);
  return row;
}

std::optional<DType> Find(absl::string_view Row::*column,
                          absl::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const Row& row : Table()) {
    if (row.*column == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

uint64_t ElementSize(DType dtype) { return FindRow(dtype).size; }

uint64_t ComponentSize(DType dtype) {
  const Row& row = FindRow(dtype);
  return row.kind == Class::kComplex ? row.size / 2u : row.size;
}

bool IsFloatingPoint(DType dtype) {
  return FindRow(dtype).kind == Class::kFloat;
}

bool IsComplex(DType dtype) { return FindRow(dtype).kind == Class::kComplex; }

absl::string_view TorchName(DType dtype) { return FindRow(dtype).torch; }

std::optional<DType> DTypeFromTorchName(absl::string_view name) {
  return Find(&Row::torch, name);
}

absl::string_view StorageClassName(DType dtype) {
  return FindRow(dtype).storage;
}

std::optional<DType> DTypeFromStorageClassName(absl::string_view name) {
  return Find(&Row::storage, name);
}

absl::string_view SafetensorsName(DType dtype) {
  return FindRow(dtype).safetensors;
}

std::optional<DType> DTypeFromSafetensorsName(absl::string_view name) {
  return Find(&Row::safetensors, name);
}

}  // namespace dcp
