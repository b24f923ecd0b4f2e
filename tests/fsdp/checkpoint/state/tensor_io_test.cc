// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/tensor_io.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;

std::vector<std::pair<std::string, at::Tensor>> TensorsFrom() {
  const at::Tensor base = at::arange(2 * 6 * 10, at::kInt).view({2, 6, 10});
  return {{"contiguous", base},
          {"transposed", base.permute({2, 0, 1})},
          {"columns", base.narrow(2, 3, 4)},
          {"rows", base.narrow(1, 1, 3)},
          {"steps", base.slice(1, 0, 6, 2)},
          {"expanded", base.select(0, 0).select(0, 1).expand({3, 10})},
          {"number", base.select(0, 1).select(0, 2).select(0, 3)},
          {"empty", base.narrow(1, 2, 0)},
          {"one wide", base.narrow(2, 4, 1)},
          {"complex", at::arange(6)
                          .to(at::kComplexFloat)
                          .mul(c10::Scalar(c10::complex<double>(1, 2)))
                          .conj()}};
}

std::vector<uint8_t> RowMajor(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.resolve_conj().contiguous();
  std::vector<uint8_t> bytes(dense.numel() * dense.element_size());
  if (!bytes.empty()) std::memcpy(bytes.data(), dense.data_ptr(), bytes.size());
  return bytes;
}

TEST(TensorIo, SourceGivesAnyStretchOfAnyStrides) {
  for (const auto& [name, tensor] : TensorsFrom()) {
    const std::vector<uint8_t> expected = RowMajor(tensor);
    TorchTensorSource source(tensor, nullptr);
    // Pieces that cut elements.
    for (const size_t piece : {size_t{7}, size_t{64}, expected.size()}) {
      std::vector<uint8_t> bytes(expected.size());
      for (size_t i = 0; i < bytes.size(); i += std::max<size_t>(piece, 1)) {
        ASSERT_OK(source.Fill(i, dcp::MutableByteSpan(bytes).subspan(
                                     i, std::min(piece, bytes.size() - i))));
      }
      ASSERT_OK(source.Flush());
      EXPECT_EQ(bytes, expected) << name << " by " << piece;
    }
  }
}

TEST(TensorIo, SinkPutsAnyStretchIntoAnyStrides) {
  for (const auto& [name, tensor] : TensorsFrom()) {
    if (name == "expanded" || name == "complex") continue;  // cannot be written
    const std::vector<uint8_t> bytes = RowMajor(tensor);
    const at::Tensor whole = at::zeros({2, 6, 10}, at::kInt);
    const at::Tensor target = whole.as_strided(tensor.sizes(), tensor.strides(),
                                               tensor.storage_offset());
    TorchTensorSink sink(target, nullptr);
    EXPECT_EQ(sink.DirectSpan().empty(),
              !tensor.is_contiguous() || tensor.numel() == 0)
        << name;
    for (size_t i = 0; i < bytes.size(); i += 7) {
      ASSERT_OK(sink.Place(i, dcp::ByteSpan(bytes).subspan(
                                  i, std::min<size_t>(7, bytes.size() - i))));
    }
    ASSERT_OK(sink.Flush());
    EXPECT_TRUE(at::equal(target, tensor)) << name;
    // No other element was touched; zero is an element of the base, too.
    EXPECT_LE(whole.ne(0).sum().item<int64_t>(), tensor.numel()) << name;
  }
}

TEST(TensorIo, TypesHaveCounterparts) {
  EXPECT_THAT(ToDType(at::kBFloat16), IsOkAndHolds(dcp::DType::kBFloat16));
  EXPECT_THAT(ToDType(at::kFloat8_e4m3fn),
              IsOkAndHolds(dcp::DType::kFloat8E4M3FN));
  for (const at::ScalarType type :
       {at::kDouble, at::kFloat, at::kHalf, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kBool, at::kComplexFloat}) {
    ASSERT_OK_AND_ASSIGN(const dcp::DType dtype, ToDType(type));
    EXPECT_EQ(dcp::ElementSize(dtype), c10::elementSize(type)) << type;
  }
  EXPECT_THAT(ToDType(at::kQInt8),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(TensorIo, RefusesTensorsWithoutMemory) {
  EXPECT_OK(CheckHasMemory(at::zeros({2})));
  EXPECT_THAT(CheckHasMemory(at::Tensor()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckHasMemory(at::empty({2}, at::device(at::kMeta))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("meta")));
  EXPECT_THAT(CheckHasMemory(at::zeros({2, 2}).to_sparse()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("sparse")));
}

TEST(TensorIo, StagingMemoryIsAligned) {
  std::pmr::memory_resource* memory = StagingMemory();
  for (const size_t bytes : {size_t{4096}, size_t{5} << 20}) {
    auto* data =
        static_cast<uint8_t*>(memory->allocate(bytes, dcp::kDirectAlignment));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % dcp::kDirectAlignment, 0u);
    std::memset(data, 1, bytes);
    memory->deallocate(data, bytes, dcp::kDirectAlignment);
  }
}

}  // namespace
}  // namespace fsdp
