// SPDX-License-Identifier: Apache-2.0
// Changed and damaged ByteCheckpoint checkpoints; dialects_test compares the
// contents of unchanged ones.
#include "dcp/checkpoint/dialects/bytecheckpoint/bytecheckpoint_opener.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_lookup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/format/pickle_edit.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::EditPickle;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr absl::string_view kSharded = "dialects/bytecheckpoint/fsdp2_ws2";
constexpr absl::string_view kFlat = "dialects/bytecheckpoint/fsdp1_flat_ws2";

// Changes the values below `key` in the index at `path`.
void EditIndex(const std::string& path, absl::string_view key,
               absl::FunctionRef<Value(ValueArena&, const Value&)> edit) {
  std::ifstream in(path, std::ios::binary);
  const std::string pickle{std::istreambuf_iterator<char>(in), {}};
  std::ofstream(path, std::ios::binary) << EditPickle(pickle, key, edit);
}

TEST(ByteCheckpointOpener, ReportsDialectAndProperties) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyGolden(dir, kSharded)));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kByteCheckpoint);
  EXPECT_THAT(
      checkpoint->properties(),
      AllOf(Contains(Pair("dialect", "bytecheckpoint")),
            Contains(Pair("version", "0.0.2")), Contains(Pair("ranks", "2"))));
}

TEST(ByteCheckpointOpener, AModelAloneIsEnough) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kSharded);
  std::filesystem::remove_all(path + "/optimizer");
  std::filesystem::remove_all(path + "/extra_state");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_TRUE(checkpoint->Find("model.embed.weight").has_value());
  EXPECT_EQ(checkpoint->entries().size(), 5);
}

TEST(ByteCheckpointOpener, WarnsOfFlatVectorsWithoutALayout) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kFlat);
  EditIndex(path + "/model/.metadata", "user_defined_dict",
            [](ValueArena& arena, const Value&) { return arena.Dict(); });
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_TRUE(checkpoint->Find("model.layers.0._flat_param").has_value());
  EXPECT_THAT(checkpoint->losses(),
              Contains(Field(&SourceLoss::text,
                             HasSubstr("flat parameters of FSDP1"))));
}

TEST(ByteCheckpointOpener, RefusesALayoutOfAnotherSize) {
  const struct {
    int64_t padding;  // instead of 1 element
    absl::string_view message;
  } kCases[] = {
      {0, "its layout has 23 elements, but the flat parameter 24"},
      {2, "its layout has more than the 24 elements"},
      {int64_t{1} << 62, "its layout has more than the 24 elements"},
  };
  for (const auto& bad : kCases) {
    const TempDir dir;
    const std::string path = CopyGolden(dir, kFlat);
    EditIndex(path + "/model/.metadata", "fsdp_numels_with_padding",
              [&](ValueArena& arena, const Value& table) {
                std::vector<Value> sizes(table.items()[1].items().begin(),
                                         table.items()[1].items().end());
                sizes[2] = Value::Int(bad.padding);
                return arena.Dict({table.items()[0], arena.List(sizes)});
              });
    EXPECT_THAT(OpenCheckpoint(path),
                StatusIs(StatusCode::kDataLoss, HasSubstr(bad.message)));
  }
}

TEST(ByteCheckpointOpener, RefusesAFlatVectorWithAHole) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kFlat);
  EditIndex(path + "/model/.metadata", "chunks",
            [](ValueArena& arena, const Value& chunks) {
              return arena.List(chunks.items().first(1));
            });
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("model.layers.0._flat_param: ")));
}

TEST(ByteCheckpointOpener, RefusesFilesThatAreCutShortOrMissing) {
  for (const absl::string_view file :
       {"model/__0_0.distcp", "optimizer/__0_0.distcp",
        "extra_state/extra_state_rank_1.pt", "optimizer/.metadata"}) {
    const TempDir dir;
    const std::string path = CopyGolden(dir, kSharded);
    std::filesystem::resize_file(absl::StrCat(path, "/", file), 10);
    EXPECT_THAT(OpenCheckpoint(path),
                StatusIs(StatusCode::kDataLoss, HasSubstr(path)))
        << file;
  }
  const std::pair<absl::string_view, absl::string_view> kMissing[] = {
      {"model/__1_0.distcp", "model/__1_0.distcp"},
      {"extra_state/extra_state_rank_0.pt",
       "extra_state_rank_{rank}.pt only 1 of 2"}};
  for (const auto& [file, message] : kMissing) {
    const TempDir dir;
    const std::string path = CopyGolden(dir, kSharded);
    std::filesystem::remove(absl::StrCat(path, "/", file));
    EXPECT_THAT(OpenCheckpoint(path),
                StatusIs(StatusCode::kNotFound, HasSubstr(message)));
  }
}

TEST(ByteCheckpointOpener, RefusesObjectsInTheSameBytes) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kSharded);
  const std::string index = path + "/optimizer/.metadata";
  EditIndex(
      index, "state_dict_metadata", [](ValueArena& arena, const Value& table) {
        std::vector<Value> items(table.items().begin(), table.items().end());
        items.push_back(arena.Str("again"));
        items.push_back(*FindKey(table, "param_groups"));
        return arena.Dict(items);
      });
  EditIndex(index, "storage_data", [](ValueArena& arena, const Value& table) {
    std::vector<Value> items(table.items().begin(), table.items().end());
    for (size_t i = 0; i < table.items().size(); i += 2) {
      const Value fqn = ObjectAttribute(items[i], "fqn");
      if (fqn.text() != "param_groups") continue;
      const Value key = arena.New(arena.Global(items[i].callable().module(),
                                               items[i].callable().name()),
                                  arena.Tuple({}));
      arena.SetState(key, arena.Dict({arena.Str("fqn"), arena.Str("again")}));
      items.push_back(key);
      items.push_back(items[i + 1]);
    }
    return arena.Dict(items);
  });
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("optimizer.again: several objects")));
}

}  // namespace
}  // namespace dcp
