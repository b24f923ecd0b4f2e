// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/mapped/mapped_tensor.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TensorEntry MappedStored(DType dtype, const Dims& shape) {
  TensorEntry entry;
  entry.dtype = dtype;
  entry.shape = shape;
  entry.boxes.push_back(WholeBox(shape));
  entry.locations.emplace_back();
  return entry;
}

// `count` elements from source `src`, which become those from `begin` on.
StridedPiece Part(uint32_t src, uint64_t begin, uint64_t count) {
  return {.src = src,
          .dst = 0,
          .src_base = {0},
          .dst_base = {begin},
          .loops = {{.count = count, .src_dim = 0, .src_step = 1}}};
}

StridedPiece Zeros(uint64_t begin, uint64_t count) {
  StridedPiece zeros = Part(StridedPiece::kZeros, begin, count);
  zeros.src_base.clear();
  zeros.loops[0].src_dim = -1;
  return zeros;
}

class MappedTensorTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<const MappedTensor>> Make(
      std::vector<StridedPiece> pieces) {
    return MappedTensor::Make(DType::kFloat32, {10}, std::move(pieces),
                              sources_);
  }

  void ExpectRefused(std::vector<StridedPiece> pieces,
                     const std::string& message) {
    EXPECT_THAT(
        Make(std::move(pieces)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }

  const TensorEntry a_ = MappedStored(DType::kFloat32, {6});
  const TensorEntry b_ = MappedStored(DType::kFloat32, {4});
  const TensorEntry half_ = MappedStored(DType::kFloat16, {4});
  const std::vector<const TensorEntry*> sources_ = {&a_, &b_, &half_};
};

TEST_F(MappedTensorTest, HasTypeAndShapeButNoChunks) {
  ASSERT_OK_AND_ASSIGN(const auto mapped, Make({Part(0, 0, 6), Part(1, 6, 4)}));
  EXPECT_EQ(mapped->sources().size(), 2u);
  EXPECT_EQ(mapped->entry().mapped, mapped.get());
  EXPECT_EQ(mapped->entry().dtype, DType::kFloat32);
  EXPECT_EQ(mapped->entry().shape, Dims{10});
  EXPECT_TRUE(mapped->entry().boxes.empty());
  EXPECT_EQ(mapped->PieceSource(mapped->pieces()[1]), &b_);
}

TEST_F(MappedTensorTest, FindsThePiecesNearABox) {
  ASSERT_OK_AND_ASSIGN(const auto mapped,
                       Make({Part(0, 0, 6), Part(1, 6, 0), Zeros(6, 4)}));
  EXPECT_EQ(mapped->pieces().size(), 2u);  // one was empty
  std::vector<uint32_t> found;
  const auto note = [&](const StridedPiece& piece) {
    found.push_back(piece.src);
  };
  mapped->ForEachPieceNear({{5}, {1}}, note);
  EXPECT_EQ(found, std::vector<uint32_t>{0});
  mapped->ForEachPieceNear({{5}, {2}}, note);
  EXPECT_EQ(found, (std::vector<uint32_t>{0, 0, StridedPiece::kZeros}));
}

TEST_F(MappedTensorTest, RefusesPiecesThatDoNotFit) {
  ExpectRefused({Part(0, 0, 6)}, "[10] make 6 elements instead of 10");
  ExpectRefused({Part(0, 0, 6), Part(1, 6, 4), Zeros(0, 1)},
                "make 11 elements instead of 10");
  ExpectRefused({Part(0, 0, 6), Part(3, 6, 4)}, "source 3 of 3");
  ExpectRefused({Part(0, 0, 6), Part(2, 6, 4)},
                "source 2 is float16 where float32 is made");
  ExpectRefused({Part(0, 0, 7), Part(1, 7, 3)}, "dimension 0 of the source");
  ExpectRefused({Part(0, 0, 6), Part(1, 7, 4)}, "of the destination");
}

TEST_F(MappedTensorTest, IsNotMadeOfAMappedTensor) {
  ASSERT_OK_AND_ASSIGN(const auto mapped, Make({Part(0, 0, 6), Zeros(6, 4)}));
  const std::vector<const TensorEntry*> sources = {&mapped->entry()};
  EXPECT_THAT(
      MappedTensor::Make(DType::kFloat32, {10}, {Part(0, 0, 10)}, sources),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("source 0 is a mapped tensor itself")));
}

}  // namespace
}  // namespace dcp
