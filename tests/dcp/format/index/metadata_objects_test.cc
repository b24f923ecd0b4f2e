// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/metadata_objects.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "dcp/format/pickle/metadata_modules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Value::Kind;

class MetadataObjectsTest : public ::testing::Test {
 protected:
  Value Size(const std::vector<int64_t>& dims) {
    std::vector<Value> items;
    for (const int64_t dim : dims) items.push_back(Value::Int(dim));
    return arena_.Call(arena_.Global("torch", "Size"),
                       arena_.Tuple({arena_.Tuple(items)}));
  }

  Value Object(
      absl::string_view module, absl::string_view name,
      std::initializer_list<std::pair<absl::string_view, Value>> fields) {
    const Value object =
        arena_.New(arena_.Global(module, name), arena_.Tuple({}));
    const Value state = arena_.Dict();
    for (const auto& [key, value] : fields) {
      arena_.Update(state, {arena_.Str(key), value});
    }
    arena_.SetState(object, state);
    return object;
  }

  Value Info(absl::string_view path, int64_t offset) {
    return Object("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                  {{"relative_path", arena_.Str(path)},
                   {"offset", Value::Int(offset)},
                   {"length", Value::Int(8)}});
  }

  // The object itself when it is not replaced.
  Value Replaced(const Value& object) {
    return objects_.Replace(object).value_or(object);
  }

  ValueArena arena_;
  MetadataObjects objects_;
};

TEST_F(MetadataObjectsTest, EqualSizesShareAnIdentifier) {
  const Value a = Replaced(Size({2, 3}));
  const Value b = Replaced(Size({2, 3}));
  const Value other = Replaced(Size({2}));
  const Value scalar = Replaced(Size({}));
  ASSERT_TRUE(a.is(Kind::kToken));
  EXPECT_TRUE(DeepEqual(a, b));
  EXPECT_FALSE(DeepEqual(a, other));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::SizeId id, objects_.ReadSize(b));
  EXPECT_THAT(objects_.dims(id), ElementsAre(2, 3));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::SizeId none,
                       objects_.ReadSize(scalar));
  EXPECT_TRUE(objects_.dims(none).empty());
  // The object holds the same data as the token.
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::SizeId whole,
                       objects_.ReadSize(Size({2, 3})));
  EXPECT_EQ(whole, id);
}

TEST_F(MetadataObjectsTest, ChunksKeysAndItemsBecomeTokens) {
  const Value chunk = Replaced(
      Object(kMetadataModule, "ChunkStorageMetadata",
             {{"offsets", Replaced(Size({4, 0}))}, {"sizes", Size({2, 3})}}));
  ASSERT_TRUE(chunk.is(Kind::kToken));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::Chunk ids,
                       objects_.ReadChunk(chunk));
  EXPECT_THAT(objects_.dims(ids.offsets), ElementsAre(4, 0));
  EXPECT_THAT(objects_.dims(ids.sizes), ElementsAre(2, 3));

  const Value key =
      Replaced(Object(kMetadataModule, "MetadataIndex",
                      {{"fqn", arena_.Str("w")}, {"offset", Size({4, 0})}}));
  const Value of_bytes =
      Replaced(Object(kMetadataModule, "MetadataIndex",
                      {{"fqn", arena_.Str("w")}, {"index", Value::Int(0)}}));
  ASSERT_TRUE(key.is(Kind::kToken));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::Key with_offset,
                       objects_.ReadKey(key));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::Key without,
                       objects_.ReadKey(of_bytes));
  EXPECT_EQ(objects_.name(with_offset.name), "w");
  EXPECT_EQ(with_offset.offset, ids.offsets);
  EXPECT_EQ(without.name, with_offset.name);
  EXPECT_EQ(without.offset, MetadataObjects::kNoSize);

  const Value info = Replaced(Info("__0_0.distcp", 16));
  ASSERT_TRUE(info.is(Kind::kToken));
  ASSERT_OK_AND_ASSIGN(const MetadataObjects::InfoId item,
                       objects_.ReadInfo(info));
  EXPECT_EQ(objects_.info(item),
            (StorageInfo{.file = 0, .offset = 16, .length = 8}));
  EXPECT_THAT(objects_.files(), ElementsAre("__0_0.distcp"));
}

TEST_F(MetadataObjectsTest, PlansBecomeEmptyTokens) {
  constexpr absl::string_view kPlanner = "torch.distributed.checkpoint.planner";
  for (const auto& [module, name] :
       std::initializer_list<std::pair<absl::string_view, absl::string_view>>{
           {kPlanner, "SavePlan"},
           {kPlanner, "WriteItem"},
           {kPlanner, "TensorWriteData"},
           {"megatron.core.dist_checkpointing.strategies.torch",
            "MCoreSavePlan"}}) {
    const Value plan = Replaced(Object(module, name, {{"a", Value::Int(1)}}));
    ASSERT_TRUE(plan.is(Kind::kToken)) << name;
    EXPECT_FALSE(objects_.ReadSize(plan).ok());
    EXPECT_FALSE(objects_.ReadChunk(plan).ok());
    EXPECT_FALSE(objects_.ReadKey(plan).ok());
    EXPECT_FALSE(objects_.ReadInfo(plan).ok());
  }
  EXPECT_FALSE(objects_.Replace(Object(kPlanner, "LoadPlan", {})).has_value());
}

TEST_F(MetadataObjectsTest, ATokenIsOfOneType) {
  const Value size = Replaced(Size({2}));
  EXPECT_THAT(objects_.ReadChunk(size), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(objects_.ReadKey(size), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(objects_.ReadInfo(size), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(objects_.ReadSize(Replaced(Info("a", 0))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("torch.Size")));
}

// Each stays, so that the error can name the tensor.
TEST_F(MetadataObjectsTest, MalformedObjectsStay) {
  const Value no_state = arena_.New(
      arena_.Global(kMetadataModule, "MetadataIndex"), arena_.Tuple({}));
  for (const Value& object :
       {Size({-1}), no_state, Info("../up", 0), Info("a", -1),
        Object(kMetadataModule, "MetadataIndex", {{"fqn", Value::Int(1)}}),
        Object(kMetadataModule, "ChunkStorageMetadata",
               {{"offsets", Size({1})}}),
        Object(kMetadataModule, "StorageMeta", {})}) {
    EXPECT_FALSE(objects_.Replace(object).has_value()) << ToString(object);
  }
  EXPECT_THAT(objects_.ReadInfo(Info("../up", 0)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("../up")));
  EXPECT_THAT(objects_.ReadKey(
                  Object(kMetadataModule, "MetadataIndex",
                         {{"fqn", arena_.Str("w")}, {"offset", Size({-1})}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("storage of w")));
}

}  // namespace
}  // namespace dcp
