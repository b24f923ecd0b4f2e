// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/torch_rewrite.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/torch/value_copy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

SelectionOptions Without(const std::string& glob) {
  SelectionOptions selection;
  selection.exclude = {glob};
  return selection;
}

SelectionOptions Cast(const std::vector<std::string>& casts) {
  SelectionOptions selection;
  selection.casts = casts;
  return selection;
}

class TorchRewriteTest : public ::testing::Test {
 protected:
  Value Str(absl::string_view text) { return arena_.Str(text); }

  Value Bare(absl::string_view key, int64_t num_bytes) {
    return arena_.Persistent(arena_.Tuple(
        {Str("storage"), arena_.Global("torch.storage", "UntypedStorage"),
         Str(key), Str("cpu"), Value::Int(num_bytes)}));
  }

  Value Parameter(Value tensor) {
    return arena_.Call(
        arena_.Global("torch._utils", "_rebuild_parameter"),
        arena_.Tuple({tensor, Value::Bool(true), OrderedDict()}));
  }

  Value OrderedDict() {
    return arena_.Call(arena_.Global("collections", "OrderedDict"),
                       arena_.Tuple({}));
  }

  // A float tensor of 2 elements that begins at element `offset` of storage
  // `key`, which has 4.
  Value View(absl::string_view key, int64_t offset) {
    const Value whole =
        MakeTensor(arena_, DType::kFloat32, {4}, /*requires_grad=*/false, key);
    std::vector<Value> args(whole.args().items().begin(),
                            whole.args().items().end());
    args[1] = Value::Int(offset);
    args[2] = arena_.Tuple({Value::Int(2)});
    return arena_.Call(whole.callable(), arena_.Tuple(args));
  }

  // Converts `root` with these storages to another .pt file.
  std::unique_ptr<Checkpoint> Rewritten(
      const Value& root, const std::vector<std::string>& storages,
      SelectionOptions selection = {}) {
    ConvertOptions options;
    options.selection = std::move(selection);
    options.overwrite = true;
    const std::string source =
        dir_.WriteFile("in.pt", TorchArchiveBytes(root, storages));
    EXPECT_OK(ConvertCheckpoint(Disk(), source, dir_.Join("out.pt"),
                                std::move(options)));
    absl::StatusOr<std::unique_ptr<Checkpoint>> copy =
        OpenCheckpoint(dir_.Join("out.pt"));
    EXPECT_OK(copy);
    return *std::move(copy);
  }

  // The bytes of the storage that `value` is the persistent id of.
  std::string BytesOfStorage(const Checkpoint& copy, const Value& value) {
    const absl::StatusOr<TorchStorage> storage = ParseStorage(value);
    EXPECT_OK(storage);
    const TorchArchive::Storage& place =
        copy.torch_archive()->storages.at(storage->key);
    const absl::StatusOr<std::string> bytes = ReadFile(
        Disk(), copy.path(), uint64_t{1} << 20, /*follow_symlinks=*/false);
    EXPECT_OK(bytes);
    return bytes->substr(place.payload_offset, place.size);
  }

  const TempDir dir_;
  ValueArena arena_;
};

TEST_F(TorchRewriteTest, TheStructureStaysToTheLetter) {
  const Value model = OrderedDict();
  arena_.Update(model, {Str("w"), Parameter(MakeTensor(arena_, DType::kFloat32,
                                                       {4}, false, "0"))});
  arena_.SetState(model, arena_.Dict({Str("_metadata"), OrderedDict()}));
  const Value counts =
      arena_.Call(arena_.Global("collections", "defaultdict"),
                  arena_.Tuple({arena_.Global("builtins", "int")}));
  arena_.Update(counts, {arena_.Tuple({Value::Int(1), Str("x")}), Value()});
  const Value root = arena_.Dict({
      Str("model"),
      model,
      Str("state"),
      arena_.Dict({Value::Int(0), arena_.Dict({Str("exp_avg"), View("1", 2),
                                               Str("step"), View("1", 0)})}),
      Str("groups"),
      arena_.List({arena_.Dict(), arena_.Tuple({Value()})}),
      Str("counts"),
      counts,
      Str("empty"),
      arena_.Dict(),
      Value(),
      Str("none"),
  });
  const std::unique_ptr<Checkpoint> copy = Rewritten(
      root, {BytesOf<float>({1, 2, 3, 4}), BytesOf<float>({5, 6, 7, 8})});
  EXPECT_TRUE(DeepEqual(copy->torch_archive()->root, root, /*exact=*/true))
      << ToString(copy->torch_archive()->root, 4000);
  ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAll(*copy));
  EXPECT_EQ(loaded.at("model.w"), BytesOf<float>({1, 2, 3, 4}));
  EXPECT_EQ(loaded.at("state.0.exp_avg"), BytesOf<float>({7, 8}));
  EXPECT_EQ(loaded.at("state.0.step"), BytesOf<float>({5, 6}));
}

TEST_F(TorchRewriteTest, StoragesKeepTheirBytesInEitherOrder) {
  const Value tensor = MakeTensor(arena_, DType::kFloat32, {1}, false, "0");
  for (const bool storage_first : {false, true}) {
    const Value storage = Bare("1", 3);
    const Value root = storage_first
                           ? arena_.Dict({Str("s"), storage, Str("t"), tensor})
                           : arena_.Dict({Str("t"), tensor, Str("s"), storage});
    const std::unique_ptr<Checkpoint> copy =
        Rewritten(root, {BytesOf<float>({7}), "abc"});
    EXPECT_EQ(BytesOfStorage(*copy, GetEntry(*copy, "s").object()->value),
              "abc");
    ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAll(*copy));
    EXPECT_EQ(loaded.at("t"), BytesOf<float>({7}));
  }
}

TEST_F(TorchRewriteTest, StoragesGoIntoADcpDirectoryAndBack) {
  const Value tensor = MakeTensor(arena_, DType::kFloat32, {1}, false, "0");
  const Value root = arena_.Dict(
      {Str("t"), tensor, Str("pair"), arena_.Tuple({Bare("1", 3), tensor})});
  const std::string source = dir_.WriteFile(
      "in.pt", TorchArchiveBytes(root, {BytesOf<float>({7}), "abc"}));
  ASSERT_OK(ConvertCheckpoint(Disk(), source, dir_.Join("dcp"), {}));
  ASSERT_OK(
      ConvertCheckpoint(Disk(), dir_.Join("dcp"), dir_.Join("back.pt"), {}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> back,
                       OpenCheckpoint(dir_.Join("back.pt")));
  const Value pair = GetEntry(*back, "pair").object()->value;
  EXPECT_EQ(BytesOfStorage(*back, pair.items()[0]), "abc");
  ASSERT_OK_AND_ASSIGN(const DiffReport same,
                       DiffCheckpoints(Disk(), source, dir_.Join("dcp"), {}));
  EXPECT_TRUE(same.findings.empty());
}

TEST_F(TorchRewriteTest, ASharedStorageIsWholeUnlessATensorOfItChanges) {
  const Value root =
      arena_.Dict({Str("a"), View("0", 0), Str("b"), View("0", 2), Str("c"),
                   arena_.Tuple({View("0", 0)})});
  const std::vector<std::string> storages = {BytesOf<float>({1, 2, 3, 4})};
  EXPECT_EQ(Rewritten(root, storages)->torch_archive()->storages.size(), 1u);
  const std::unique_ptr<Checkpoint> some =
      Rewritten(root, storages, Without("a"));
  // The tensor of the tuple, and "b", each with 2 elements.
  ASSERT_EQ(some->torch_archive()->storages.size(), 2u);
  for (const auto& [key, storage] : some->torch_archive()->storages) {
    EXPECT_EQ(storage.size, 2 * sizeof(float)) << key;
  }
  const std::unique_ptr<Checkpoint> cast =
      Rewritten(root, storages, Cast({"a=fp64"}));
  ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAll(*cast));
  EXPECT_EQ(loaded.at("a"), BytesOf<double>({1, 2}));
  EXPECT_EQ(loaded.at("b"), BytesOf<float>({3, 4}));
}

TEST_F(TorchRewriteTest, ACastParameterStaysAParameterAndTheSameObject) {
  const Value weight =
      Parameter(MakeTensor(arena_, DType::kFloat32, {2}, false, "0"));
  const Value root =
      arena_.Dict({Str("in"), weight, Str("out"), weight, Str("x"), weight});
  const std::unique_ptr<Checkpoint> copy =
      Rewritten(root, {BytesOf<float>({1, 2})}, Cast({"bf16", "x=fp32"}));
  const absl::Span<const Value> items = copy->torch_archive()->root.items();
  EXPECT_EQ(items[1].identity(), items[3].identity());
  EXPECT_NE(items[1].identity(), items[5].identity());
  ASSERT_OK_AND_ASSIGN(const TorchTensor cast, ParseTensor(items[1]));
  EXPECT_TRUE(cast.is_parameter);
  EXPECT_EQ(cast.dtype, DType::kBFloat16);
}

TEST_F(TorchRewriteTest, EmptyContainersFollowTheSelection) {
  // Patterns have to match a value as well.
  const Value root =
      arena_.Dict({Str("a"), arena_.Dict(), Str("a2"), Value::Int(2), Str("b"),
                   arena_.Dict(), Str("n"), Value::Int(1)});
  EXPECT_EQ(ToString(Rewritten(root, {}, Without("a*"))->torch_archive()->root),
            "{'b': {}, 'n': 1}");
  SelectionOptions some;
  some.include = {"a*", "n"};
  some.renames = {"s/a/z/"};
  EXPECT_EQ(ToString(Rewritten(root, {}, some)->torch_archive()->root),
            "{'z': {}, 'z2': 2, 'n': 1}");
}

TEST_F(TorchRewriteTest, WhatIsNotReadIsKeptIfItIsHarmlessAndElseRefused) {
  // It is not supported as a tensor, but its parts are known.
  const Value sparse = arena_.Call(
      arena_.Global("torch._utils", "_rebuild_sparse_tensor"),
      arena_.Tuple({MakeTensor(arena_, DType::kFloat32, {1}, false, "0")}));
  const Value known = arena_.Dict({Str("s"), sparse, Str("n"), Value::Int(1)});
  EXPECT_TRUE(DeepEqual(Rewritten(known, {"abcd"})->torch_archive()->root,
                        known, true));
  const Value config =
      arena_.New(arena_.Global("mylib", "Config"), arena_.Tuple({}));
  const std::string source = dir_.WriteFile(
      "in.pt",
      TorchArchiveBytes(
          arena_.Dict({Str("c"), config, Str("n"), Value::Int(1)}), {}));
  EXPECT_THAT(ConvertCheckpoint(Disk(), source, dir_.Join("new.pt"), {}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("c: global mylib.Config"),
                             HasSubstr("the option drop_unreadable"))));
  ConvertOptions options;
  options.drop_unreadable = true;
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), source, dir_.Join("new.pt"),
                                         std::move(options)));
  EXPECT_THAT(plan.dropped, ::testing::ElementsAre("c"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> rest,
                       OpenCheckpoint(dir_.Join("new.pt")));
  EXPECT_EQ(ToString(rest->torch_archive()->root), "{'n': 1}");
}

TEST_F(TorchRewriteTest, LegacyAndBigEndianFilesHoldTheSame) {
  const TempDir dir;
  const std::string legacy = CopyGolden(dir, "torch-2.11/legacy.pt");
  ASSERT_OK(ConvertCheckpoint(Disk(), legacy, dir_.Join("new.pt"), {}));
  ASSERT_OK_AND_ASSIGN(
      const DiffReport report,
      DiffCheckpoints(Disk(), legacy, dir_.Join("new.pt"), {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.containers_skipped, "");
}

}  // namespace
}  // namespace dcp
