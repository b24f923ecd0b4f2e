// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/metadata_builder.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SaveTensor Rows(int64_t first, int64_t num) {
  return {.fqn = "w",
          .dtype = DType::kFloat32,
          .shape = {4, 2},
          .box = {{first, 0}, {num, 2}}};
}

// The metadata from a rank that writes `tensor` to a separate file.
Metadata OfRank(const SaveTensor& tensor, const std::string& file) {
  MetadataBuilder builder;
  builder.metadata().files = {file};
  builder.AddChunk(tensor, {.file = 0, .offset = 64, .length = 16});
  return std::move(builder.metadata());
}

TEST(MetadataBuilder, GathersChunksByNameAndRenumbersFiles) {
  MetadataBuilder builder;
  builder.metadata().files = {"a"};
  builder.AddObject({.fqn = "step", .value = Value::Int(1)},
                    {.file = 0, .offset = 0, .length = 9});
  EXPECT_OK(builder.Merge(OfRank(Rows(0, 1), "b")));
  EXPECT_OK(builder.Merge(OfRank(Rows(1, 3), "c")));
  const Metadata& metadata = builder.metadata();
  EXPECT_THAT(metadata.files, ElementsAre("a", "b", "c"));
  ASSERT_EQ(metadata.entries.size(), 2u);
  const auto& chunks =
      std::get<TensorStorageMetadata>(metadata.entries[1].value).chunks;
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].storage.file, 1u);
  EXPECT_EQ(chunks[1].storage.file, 2u);
  EXPECT_EQ(chunks[1].box, Rows(1, 3).box);
  EXPECT_OK(builder.CheckWhole());
}

TEST(MetadataBuilder, KeepsTheFirstOfObjectsThatSeveralHave) {
  MetadataBuilder first;
  first.metadata().files = {"a"};
  first.AddObject({.fqn = "step", .value = Value::Int(1)},
                  {.file = 0, .offset = 5, .length = 9});
  MetadataBuilder second = first;
  ASSERT_OK(first.Merge(std::move(second.metadata())));
  ASSERT_EQ(first.metadata().entries.size(), 1u);
  EXPECT_EQ(std::get<BytesStorageMetadata>(first.metadata().entries[0].value)
                .storage.file,
            0u);
}

TEST(MetadataBuilder, RefusesANameWithTwoKindsOfValues) {
  MetadataBuilder object;
  object.metadata().files = {"a"};
  object.AddObject({.fqn = "w", .value = Value::Int(1)}, {});
  EXPECT_THAT(object.Merge(OfRank(Rows(0, 1), "b")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("w is a tensor on one rank")));
  SaveTensor other = Rows(1, 3);
  other.dtype = DType::kInt32;
  MetadataBuilder builder;
  ASSERT_OK(builder.Merge(OfRank(Rows(0, 1), "b")));
  EXPECT_THAT(builder.Merge(OfRank(other, "c")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("float32"), HasSubstr("int32"))));
}

TEST(MetadataBuilder, FindsMissingPartsAndCountsReplicasOnce) {
  MetadataBuilder builder;
  ASSERT_OK(builder.Merge(OfRank(Rows(0, 1), "a")));
  ASSERT_OK(builder.Merge(OfRank(Rows(0, 1), "b")));
  EXPECT_THAT(builder.CheckWhole(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w: ")));
  ASSERT_OK(builder.Merge(OfRank(Rows(1, 3), "c")));
  EXPECT_OK(builder.CheckWhole());
}

}  // namespace
}  // namespace dcp
