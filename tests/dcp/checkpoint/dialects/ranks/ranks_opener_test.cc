// SPDX-License-Identifier: Apache-2.0
// Directories with two ranks' small pickles, in which one thing is wrong.
// dialects_test compares the files that programs wrote.
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/archive_editor.h"
#include "tests/dcp/checkpoint/open/dialects/ranks/rank_checkpoint.h"
#include "tests/dcp/format/rank_values.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::ArchiveEditor;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::DTensorSpec;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::MakeDTensor;
using ::dcp::testing::MakeObject;
using ::dcp::testing::MakeReplicate;
using ::dcp::testing::MakeShard;
using ::dcp::testing::MakeShardedTensor;
using ::dcp::testing::MakeStridedShard;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::RankCheckpoint;
using ::dcp::testing::ShardedSpec;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;

using Bytes = std::map<std::string, std::string>;

class RanksOpenerTest : public ::testing::Test {
 protected:
  ValueArena& arena() { return files_.arena(); }

  // A row in a matrix with two rows.
  DTensorSpec Row(int64_t rank) {
    return {.shape = {2, 3},
            .local = {1, 3},
            .key = "0",
            .mesh = {2},
            .coordinate = {rank},
            .placements = {MakeShard(arena(), 0)}};
  }
  void AddRank(int64_t rank, Value w,
               const std::vector<std::pair<std::string, Value>>& others = {}) {
    const Value root = arena().Dict({arena().Str("w"), w});
    for (const auto& [name, value] : others) {
      arena().Update(root, {arena().Str(name), value});
    }
    files_.Add(absl::StrCat("model_world_size_2_rank_", rank, ".pt"), root,
               {rank == 0 ? "abcabc" : "defdef"});
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() {
    return OpenCheckpoint(files_.Write(dir_));
  }
  // The error for two ranks with these tensors.
  absl::Status Refusal(Value first, Value second) {
    files_.Clear();
    AddRank(0, first);
    AddRank(1, second);
    return Open().status();
  }

  TempDir dir_;
  RankCheckpoint files_;
};

TEST_F(RanksOpenerTest, RowsAreJoinedAndTheMeshIsShown) {
  AddRank(0, MakeDTensor(arena(), Row(0)));
  AddRank(1, MakeDTensor(arena(), Row(1)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint, Open());
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (Bytes{{"model.w", "abcdef"}}));
  EXPECT_THAT(checkpoint->properties(),
              AllOf(::testing::Contains(Pair("ranks", "2")),
                    ::testing::Contains(Pair("mesh", "dim0=2"))));
}

// DTensors' files say where they belong, whatever their names.
TEST_F(RanksOpenerTest, ReadsSwappedDTensorFiles) {
  AddRank(1, MakeDTensor(arena(), Row(0)));
  AddRank(0, MakeDTensor(arena(), Row(1)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint, Open());
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found.at("model.w"), "defabc");
}

TEST_F(RanksOpenerTest, RanksThatDisagreeAreRefused) {
  const Value first = MakeDTensor(arena(), Row(0));
  DTensorSpec other = Row(1);
  other.shape = {3, 3};
  EXPECT_THAT(Refusal(first, MakeDTensor(arena(), other)),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("rank_1.pt"), HasSubstr("[3, 3]"),
                             HasSubstr("[2, 3]"))));
  other = Row(1);
  other.dtype = DType::kInt8;
  EXPECT_THAT(Refusal(first, MakeDTensor(arena(), other)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("int8")));
  other = Row(1);
  other.placements = {MakeReplicate(arena())};
  other.local = {2, 3};
  EXPECT_THAT(Refusal(first, MakeDTensor(arena(), other)),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("as R on"), HasSubstr("as S(0) on"))));
  other = Row(1);
  other.mesh = {2, 1};
  other.coordinate = {1, 0};
  other.placements.push_back(MakeReplicate(arena()));
  EXPECT_THAT(
      Refusal(first, MakeDTensor(arena(), other)),
      StatusIs(StatusCode::kDataLoss, HasSubstr("on the mesh dim0=2,dim1=1")));
  EXPECT_THAT(Refusal(first, Value::Int(1)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("w is sharded")));
}

TEST_F(RanksOpenerTest, RequiresEachPartOfATensorOnce) {
  const auto shard = [&](int64_t begin, int64_t size, int64_t rank) {
    return MakeShardedTensor(arena(), {.shape = {4},
                                       .offsets = {begin},
                                       .sizes = {size},
                                       .key = "0",
                                       .rank = rank,
                                       .world_size = 2});
  };
  EXPECT_OK(Refusal(shard(0, 3, 0), shard(3, 1, 1)));
  // A hole, and two that claim the same.
  EXPECT_THAT(Refusal(shard(0, 2, 0), shard(3, 1, 1)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("model.w")));
  EXPECT_THAT(Refusal(shard(0, 3, 0), shard(2, 2, 1)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("model.w")));
  EXPECT_THAT(Refusal(shard(0, 3, 0), shard(0, 3, 1)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("model.w")));
  EXPECT_THAT(
      Refusal(MakeDTensor(arena(), Row(0)), MakeDTensor(arena(), Row(0))),
      StatusIs(StatusCode::kDataLoss, HasSubstr("model.w")));
  // Swapped files.
  EXPECT_THAT(Refusal(shard(3, 1, 1), shard(0, 3, 0)),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("rank 0 of 2, but the contents belong to "
                                 "rank 1 of 2")));
}

TEST_F(RanksOpenerTest, RequiresAFileForEachRank) {
  AddRank(0, MakeDTensor(arena(), Row(0)));
  EXPECT_THAT(Open(), StatusIs(StatusCode::kNotFound, HasSubstr("1 of 2")));
  files_.Add("a.rank_0.pt", arena().Dict(), {});
  files_.Add("b.rank_0.pt", arena().Dict(), {});
  AddRank(1, MakeDTensor(arena(), Row(1)));
  EXPECT_THAT(Open(), StatusIs(StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("a.rank_{rank}.pt"),
                                     HasSubstr("b.rank_{rank}.pt"))));
}

TEST_F(RanksOpenerTest, ValuesThatDifferAreKeptByRank) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    AddRank(rank, MakeDTensor(arena(), Row(rank)),
            {{"same", Value::Int(5)},
             {"own", MakeTensor(arena(), DType::kUInt8, {2}, false, "0")}});
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint, Open());
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found, (Bytes{{"model.own", "ab"},
                          {"model.own@1", "de"},
                          {"model.w", "abcdef"}}));
  EXPECT_FALSE(checkpoint->Find("model.same@1").has_value());
}

// Values that the reader for one .pt file leaves unread do not stop this one
// either.
TEST_F(RanksOpenerTest, TensorsThatCannotBeReadAreNamed) {
  const auto call = [&](const char* module, const char* name, Value args) {
    return arena().Call(arena().Global(module, name), args);
  };
  const Value sparse =
      call("torch._utils", "_rebuild_sparse_tensor", arena().Tuple({Value()}));
  const Value meta =
      call("torch._utils", "_rebuild_meta_tensor_no_storage",
           arena().Tuple({arena().Global("torch", "float32"), Value(), Value(),
                          Value::Bool(false)}));
  const Value quantized =
      call("torch._utils", "_rebuild_qtensor", arena().Tuple({Value()}));
  const Value nested =
      call("torch._utils", "_rebuild_nested_tensor", arena().Tuple({Value()}));
  const Value type =
      arena().Global("torchao.float8.float8_tensor", "Float8Tensor");
  const Value subclass =
      call("torch._tensor", "_rebuild_from_type_v2",
           arena().Tuple(
               {arena().Global("torch._utils", "_rebuild_wrapper_subclass"),
                type, arena().Tuple({type}), arena().Dict()}));
  const std::map<std::string, std::pair<Value, std::string>> odd = {
      {"sparse", {sparse, "sparse"}},
      {"meta", {meta, "meta"}},
      {"quantized", {quantized, "_rebuild_qtensor"}},
      {"nested", {nested, "_rebuild_nested_tensor"}},
      {"subclass", {subclass, "torchao.float8.float8_tensor.Float8Tensor"}}};
  std::vector<std::pair<std::string, Value>> others;
  for (const auto& [name, value] : odd) others.emplace_back(name, value.first);
  AddRank(0, MakeDTensor(arena(), Row(0)), others);
  AddRank(1, MakeDTensor(arena(), Row(1)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint, Open());
  for (const auto& [name, value] : odd) {
    SCOPED_TRACE(name);
    const ObjectEntry* const object =
        GetEntry(*checkpoint, absl::StrCat("model.", name)).object();
    ASSERT_NE(object, nullptr);
    EXPECT_THAT(object->unreadable.message(), HasSubstr(value.second));
  }
}

TEST_F(RanksOpenerTest, PicklesStayData) {
  AddRank(0, MakeDTensor(arena(), Row(0)));
  AddRank(1, arena().Call(arena().Global("os", "system"),
                          arena().Tuple({arena().Str("true")})));
  EXPECT_THAT(Open(),
              StatusIs(StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("rank_1.pt"), HasSubstr("os.system"))));
  // getattr is there to name one nested class.
  const auto getattr = [&](Value owner, const char* name) {
    return arena().Call(arena().Global("__builtin__", "getattr"),
                        arena().Tuple({owner, arena().Str(name)}));
  };
  const Value sharded = arena().Global(
      "torch.distributed._shard.sharded_tensor.api", "ShardedTensor");
  for (const Value& value :
       {getattr(sharded, "__init__"),
        getattr(arena().Global("collections", "OrderedDict"),
                "ProcessGroupState")}) {
    files_.Clear();
    AddRank(0, MakeDTensor(arena(), Row(0)));
    AddRank(1, MakeDTensor(arena(), Row(1)), {{"x", value}});
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint, Open());
    EXPECT_THAT(GetEntry(*checkpoint, "model.x").object()->unreadable,
                StatusIs(StatusCode::kPermissionDenied, HasSubstr("getattr")));
  }
}

// Small pickles must not become many boxes.
TEST_F(RanksOpenerTest, TheNumberOfBoxesIsLimited) {
  constexpr int64_t kNumPieces = int64_t{1} << 13;
  const std::string elements(static_cast<size_t>(kNumPieces), 'x');
  const DTensorSpec spec = {
      .shape = {3 * kNumPieces},
      .local = {kNumPieces},
      .key = "0",
      .mesh = {2},
      .coordinate = {1},
      .placements = {MakeStridedShard(arena(), 0, kNumPieces)}};
  const Value root = arena().Dict();
  for (int i = 0; i < 3; ++i) {
    arena().Update(
        root, {arena().Str(absl::StrCat("w", i)), MakeDTensor(arena(), spec)});
  }
  files_.Add("model_world_size_1_rank_0.pt", root, {elements});
  EXPECT_THAT(Open(), StatusIs(StatusCode::kResourceExhausted,
                               HasSubstr("boxes, more than 8 each")));
}

// ---- verl's files, with one changed -----------------------------------------

TEST(RanksOpenerGolden, AChangedFileIsRefused) {
  const std::string name = "dialects/verl/verl_fsdp2_ws2";
  const auto file = [](const std::string& path, int rank) {
    return absl::StrCat(path, "/model_world_size_2_rank_", rank, ".pt");
  };
  const TempDir dir;
  const std::string missing = CopyGolden(dir, name);
  std::filesystem::remove(file(missing, 1));
  EXPECT_THAT(OpenCheckpoint(missing),
              StatusIs(StatusCode::kNotFound, HasSubstr("only 1 of 2")));
  const TempDir other;
  const std::string twice = CopyGolden(other, name);
  std::filesystem::copy_file(file(twice, 0), file(twice, 1),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(OpenCheckpoint(twice),
              StatusIs(StatusCode::kDataLoss, HasSubstr("model.")));
  const TempDir third;
  const std::string cut = CopyGolden(third, name);
  std::filesystem::resize_file(file(cut, 1), 1000);
  EXPECT_THAT(OpenCheckpoint(cut),
              StatusIs(StatusCode::kDataLoss, HasSubstr("rank_1.pt")));
}

// A shard with offsets outside of the tensor, in FSDP1's files.
TEST(RanksOpenerGolden, AShardOutsideOfItsTensorIsRefused) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, "dialects/fsdp1/pickle_sharded_ws3");
  {
    ArchiveEditor e(absl::StrCat(path, "/model_final.rank_1.pth"));
    const Value wrapper = e.At({"model", "embed.weight"});
    const Value shard = wrapper.args().items()[3].items()[0].items()[0];
    const Value metadata = ObjectAttribute(shard, "metadata");
    e.arena().Update(
        metadata.state().items()[1],
        {e.arena().Str("shard_offsets"),
         e.arena().List({Value::Int(int64_t{1} << 40), Value::Int(0)})});
    e.Save();
  }
  EXPECT_THAT(
      OpenCheckpoint(path),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr("rank_1.pth"), HasSubstr("model.embed.weight"),
                     HasSubstr("is not inside shape"))));
}

}  // namespace
}  // namespace dcp
