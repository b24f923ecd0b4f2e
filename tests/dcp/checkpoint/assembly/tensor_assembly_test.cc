// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/assembly/tensor_assembly.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleTensor;

// Joins `tensor` from the bytes that each part would send, which must be the
// part's own bytes, in order, without a gap.
void ExpectWhole(const SampleTensor& tensor, const std::vector<Box>& parts) {
  const TensorAssembly assembly(tensor.shape, tensor.dtype, parts);
  std::vector<uint64_t> sent(parts.size());
  std::string whole;
  for (uint64_t window = 0; window < assembly.num_windows(); ++window) {
    const TensorAssembly::Stretch stretch = assembly.WindowAt(window);
    ASSERT_EQ(stretch.begin, whole.size());
    std::vector<uint8_t> bytes(stretch.length());
    for (size_t i = 0; i < parts.size(); ++i) {
      const TensorAssembly::Stretch needed = assembly.Needed(window, i);
      ASSERT_EQ(needed.begin, sent[i]) << "part " << i;
      sent[i] = needed.end;
      const std::string part = tensor.BytesOf(parts[i]);
      assembly.Place(window, i,
                     AsBytes(part).subspan(needed.begin, needed.length()),
                     bytes);
    }
    absl::StrAppend(&whole, AsText(bytes));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(sent[i], tensor.BytesOf(parts[i]).size()) << "part " << i;
  }
  EXPECT_EQ(whole, tensor.bytes);
}

TEST(TensorAssembly, RowsOfSeveralWindows) {
  ExpectWhole(SampleTensor("w", DType::kFloat32, {700, 1000}),
              {{{0, 0}, {333, 1000}}, {{333, 0}, {367, 1000}}});
}

TEST(TensorAssembly, ColumnsOfSeveralWindows) {
  ExpectWhole(
      SampleTensor("w", DType::kBFloat16, {900, 701}),
      {{{0, 0}, {900, 350}}, {{0, 350}, {900, 1}}, {{0, 351}, {900, 350}}});
}

TEST(TensorAssembly, BlocksOfThreeDimensionsInAnyOrder) {
  ExpectWhole(SampleTensor("w", DType::kFloat64, {5, 300, 200}),
              {{{2, 100, 0}, {3, 200, 120}},
               {{0, 0, 0}, {2, 300, 200}},
               {{2, 0, 0}, {3, 100, 200}},
               {{2, 100, 120}, {3, 200, 80}}});
}

TEST(TensorAssembly, HandlesOneElementAndNone) {
  ExpectWhole(SampleTensor("w", DType::kInt64, {}), {Box()});
  const TensorAssembly none({0, 3}, DType::kFloat32, {});
  EXPECT_EQ(none.num_windows(), 0u);
  EXPECT_EQ(none.num_bytes(), 0u);
}

}  // namespace
}  // namespace dcp
