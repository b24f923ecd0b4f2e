// SPDX-License-Identifier: Apache-2.0

#include "dcp/tensor/dtype.h"

#include <optional>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace dcp {
namespace {

DType At(int index) { return static_cast<DType>(index); }

TEST(DType, EveryNameMapsBackToItsType) {
  std::set<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = At(i);
    EXPECT_EQ(DTypeFromTorchName(TorchName(dtype)), dtype);
    EXPECT_TRUE(names.insert(std::string(TorchName(dtype))).second);
    if (!StorageClassName(dtype).empty()) {
      EXPECT_EQ(DTypeFromStorageClassName(StorageClassName(dtype)), dtype);
    }
    if (!SafetensorsName(dtype).empty()) {
      EXPECT_EQ(DTypeFromSafetensorsName(SafetensorsName(dtype)), dtype);
    }
  }
}

TEST(DType, UnknownAndEmptyNamesAreNoType) {
  EXPECT_EQ(DTypeFromTorchName("float3x"), std::nullopt);
  EXPECT_EQ(DTypeFromTorchName(""), std::nullopt);
  EXPECT_EQ(DTypeFromStorageClassName(""), std::nullopt);
  EXPECT_EQ(DTypeFromStorageClassName("QInt8Storage"), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensorsName(""), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensorsName("F31"), std::nullopt);
}

TEST(DType, SizesFollowTheNames) {
  EXPECT_EQ(ElementSize(DType::kBFloat16), 2u);
  EXPECT_EQ(ElementSize(DType::kFloat64), 8u);
  EXPECT_EQ(ElementSize(DType::kComplex128), 16u);
  EXPECT_EQ(ElementSize(DType::kBool), 1u);
  EXPECT_EQ(ElementSize(DType::kFloat4E2M1FNX2), 1u);
  EXPECT_EQ(ElementSize(DType::kBits16), 2u);
}

TEST(DType, ComplexTypesSwapTheirHalves) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const uint64_t parts = IsComplex(At(i)) ? 2 : 1;
    EXPECT_EQ(ComponentSize(At(i)) * parts, ElementSize(At(i)));
  }
  EXPECT_EQ(ComponentSize(DType::kComplex32), 2u);
}

TEST(DType, FloatingPointTypesAreTorchs) {
  EXPECT_TRUE(IsFloatingPoint(DType::kFloat8E8M0FNU));
  EXPECT_TRUE(IsFloatingPoint(DType::kBFloat16));
  EXPECT_FALSE(IsFloatingPoint(DType::kComplex64));
  EXPECT_FALSE(IsFloatingPoint(DType::kInt8));
  EXPECT_FALSE(IsFloatingPoint(DType::kBool));
  EXPECT_FALSE(IsFloatingPoint(DType::kBits8));
}

TEST(DType, TypesWithoutAStorageClassUseUntypedStorage) {
  EXPECT_EQ(StorageClassName(DType::kFloat16), "HalfStorage");
  EXPECT_EQ(StorageClassName(DType::kUInt16), "");
  EXPECT_EQ(StorageClassName(DType::kFloat8E4M3FN), "");
}

}  // namespace
}  // namespace dcp
