// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/stored_fields.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The fields in a JSON object.
absl::StatusOr<StoredFields> Fields(absl::string_view json) {
  StoredFields fields;
  std::string field;
  const absl::Status status =
      ParseJson(json, [&](const JsonEvent& event) -> absl::Status {
        if (event.depth == 0) return absl::OkStatus();
        if (event.kind != JsonEvent::Kind::kKey) {
          return fields.Take(field, event);
        }
        field = std::string(event.text);
        EXPECT_TRUE(StoredFields::Has(field)) << field;
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return fields;
}

TEST(StoredFields, DescribeATensor) {
  ASSERT_OK_AND_ASSIGN(
      const StoredFields fields,
      Fields(R"({"location": "a", "serializer": "buffer_protocol",
                 "dtype": "torch.int16", "shape": [3], "byte_range": [2, 8]})"));
  EXPECT_EQ(fields.location(), "a");
  ASSERT_OK_AND_ASSIGN(const SnapshotTensor tensor, fields.Tensor(5));
  EXPECT_EQ(tensor.dtype, DType::kInt16);
  EXPECT_THAT(tensor.shape, ElementsAre(3));
  EXPECT_EQ(tensor.range.file, 5);
  EXPECT_EQ(tensor.range.begin, 2);
  EXPECT_EQ(tensor.range.end, 8);
  EXPECT_THAT(fields.Object(5), StatusIs(StatusCode::kUnimplemented,
                                         HasSubstr("'buffer_protocol'")));
}

TEST(StoredFields, TheTypeOfATensorNeedsNoPlace) {
  ASSERT_OK_AND_ASSIGN(const StoredFields fields,
                       Fields(R"({"dtype": "torch.bool", "shape": []})"));
  ASSERT_OK_AND_ASSIGN(const SnapshotTensor tensor, fields.TensorType());
  EXPECT_EQ(tensor.dtype, DType::kBool);
  EXPECT_TRUE(tensor.shape.empty());
  EXPECT_THAT(fields.Tensor(0),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("serializer ''")));
}

TEST(StoredFields, AnObjectIsAWholeFileOrARange) {
  ASSERT_OK_AND_ASSIGN(
      const StoredFields whole,
      Fields(R"({"serializer": "torch_save", "byte_range": null})"));
  ASSERT_OK_AND_ASSIGN(SnapshotRange range, whole.Object(1));
  EXPECT_TRUE(range.is_whole);
  ASSERT_OK_AND_ASSIGN(
      const StoredFields part,
      Fields(R"({"serializer": "torch_save", "byte_range": [7, 7]})"));
  ASSERT_OK_AND_ASSIGN(range, part.Object(1));
  EXPECT_FALSE(range.is_whole);
  EXPECT_EQ(range.begin, 7);
}

TEST(StoredFields, RefuseValuesOfOtherTypes) {
  for (const absl::string_view json :
       {R"({"location": 1})", R"({"dtype": null})", R"({"shape": "[2]"})",
        R"({"shape": [2.5]})", R"({"shape": [[2]]})", R"({"byte_range": 8})",
        R"({"serializer": []})"}) {
    EXPECT_THAT(Fields(json),
                StatusIs(StatusCode::kDataLoss, HasSubstr("unexpected type")))
        << json;
  }
}

}  // namespace
}  // namespace dcp
