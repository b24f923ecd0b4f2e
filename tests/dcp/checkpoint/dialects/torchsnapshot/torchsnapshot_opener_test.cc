// SPDX-License-Identifier: Apache-2.0
// Changed and damaged snapshots; dialects_test compares the contents of
// unchanged ones.
#include "dcp/checkpoint/dialects/torchsnapshot/torchsnapshot_opener.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::BytesOf;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr absl::string_view kManifest = ".snapshot_metadata";

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A snapshot with this manifest, and a slab with 64 bytes.
std::string Snapshot(const TempDir& dir, absl::string_view entries,
                     int world_size = 2) {
  dir.WriteFile("s/slab", std::string(64, '\1'));
  dir.WriteFile(absl::StrCat("s/", kManifest),
                absl::StrCat(R"({"version": "0.1.0", "world_size": )",
                             world_size, R"(, "manifest": {)", entries, "}}"));
  return dir.Join("s");
}

// A tensor with `rows` times 2 float32 in the slab's bytes.
std::string InSlab(int rows, absl::string_view range) {
  return absl::StrCat(R"({"type": "Tensor", "location": "slab",
      "serializer": "buffer_protocol", "dtype": "torch.float32", "shape": [)",
                      rows, R"(, 2], "byte_range": )", range, "}");
}

// A shard with `rows` rows from row `begin` on.
std::string Shard(absl::string_view begin, int rows, absl::string_view range) {
  return absl::StrCat(R"({"offsets": [)", begin, R"(, 0], "sizes": [)", rows,
                      R"(, 2], "tensor": )", InSlab(rows, range), "}");
}

std::string Sharded(absl::string_view path, absl::string_view shards) {
  return absl::StrCat("\"", path, R"(": {"type": "ShardedTensor", "shards": [)",
                      shards, "]}");
}

TEST(TorchSnapshotOpener, ReportsDialectAndProperties) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(CopyGolden(dir, "dialects/torchsnapshot/sharded_ws3")));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kTorchSnapshot);
  EXPECT_THAT(
      checkpoint->properties(),
      AllOf(Contains(Pair("dialect", "torchsnapshot")),
            Contains(Pair("version", "0.1.0")), Contains(Pair("ranks", "3"))));
  const auto table = checkpoint->Find("model.table");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(checkpoint->entries()[*table].tensor()->boxes.size(), 3);
}

TEST(TorchSnapshotOpener, EqualShardsAreReplicas) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(Snapshot(
          dir, absl::StrCat(Sharded("0/m/t", Shard("0", 2, "[0, 16]")), ",",
                            Sharded("1/m/t", Shard("0", 2, "[16, 32]"))))));
  const TensorEntry& tensor = *checkpoint->entries()[0].tensor();
  ASSERT_EQ(tensor.locations.size(), 1);
  EXPECT_EQ(tensor.locations[0].payload_offset, 0);
}

TEST(TorchSnapshotOpener, ValuesOfRanksKeepTheirPlaceInLists) {
  const TempDir dir;
  const std::string lists = absl::StrCat(R"(
      "0/m": {"type": "list"}, "1/m": {"type": "list"},
      "0/m/0": {"type": "int", "serialized_value": "-7"},
      "1/m/0": {"type": "int", "serialized_value": "12345678901234567890123"},
      "0/m/1": )",
                                         InSlab(2, "[0, 16]"), R"(, "1/m/1": )",
                                         InSlab(2, "[16, 32]"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(Snapshot(dir, lists)));
  EXPECT_EQ(ToString(*GetEntry(*checkpoint, "m.0").object(), 60), "-7");
  EXPECT_EQ(ToString(*GetEntry(*checkpoint, "m.0@1").object(), 60),
            "12345678901234567890123");
  EXPECT_NE(GetEntry(*checkpoint, "m.1@1").tensor(), nullptr);
}

TEST(TorchSnapshotOpener, ListsOfPlainValuesAreOneValue) {
  const TempDir dir;
  constexpr absl::string_view kLists = R"(
      "0/m": {"type": "dict"}, "0/m/l": {"type": "list"},
      "1/m": {"type": "dict"}, "1/m/l": {"type": "list"},
      "0/m/l/0": {"type": "int", "serialized_value": "1"},
      "1/m/l/0": {"type": "int", "serialized_value": "2"},
      "1/m/l/1": {"type": "str", "serialized_value": "x"})";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(Snapshot(dir, kLists)));
  EXPECT_EQ(checkpoint->entries().size(), 2);
  EXPECT_EQ(ToString(*GetEntry(*checkpoint, "m.l").object(), 60), "[1]");
  EXPECT_EQ(ToString(*GetEntry(*checkpoint, "m.l@1").object(), 60), "[2, 'x']");
}

TEST(TorchSnapshotOpener, ReplicatedValuesOfEveryRankAreOne) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(Snapshot(
          dir, absl::StrReplaceAll(
                   absl::StrCat("\"0/w\": ", InSlab(2, "[0, 16]"),
                                ",\"1/w\": ", InSlab(2, "[0, 16]")),
                   {{"\"shape\"", "\"replicated\": true, \"shape\""}}))));
  EXPECT_EQ(checkpoint->entries().size(), 1);
}

TEST(TorchSnapshotOpener, QuantizedTensorsAreOnlyListed) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      OpenCheckpoint(Snapshot(
          dir,
          absl::StrReplaceAll(absl::StrCat("\"0/q\": ", InSlab(2, "[0, 7]")),
                              {{"buffer_protocol", "per_channel_qtensor"}}))));
  const ObjectEntry* const object = checkpoint->entries()[0].object();
  ASSERT_NE(object, nullptr);
  EXPECT_THAT(object->unreadable,
              StatusIs(StatusCode::kUnimplemented, HasSubstr("quantized")));
}

TEST(TorchSnapshotOpener, RefusesShardsThatDoNotMakeATensor) {
  const struct {
    std::string entries;
    std::string message;
  } kCases[] = {
      {Sharded("0/m/t",
               Shard("0", 2, "[0, 16]") + "," + Shard("1", 2, "[16, 32]")),
       "m.t: "},
      {Sharded("0/m/t", Shard("1", 2, "[0, 16]")), "m.t: "},
      {Sharded("0/m/t", Shard("4611686018427387904", 2, "[0, 16]")),
       "exceeds 64 bits"},
      {Sharded("0/m/t", Shard("0", 2, "[0, 16]")) + "," +
           absl::StrReplaceAll(Sharded("1/m/t", Shard("2", 2, "[0, 8]")),
                               {{", 0]", "]"}, {", 2]", "]"}}),
       "is next to pieces of 2 dimensions"},
      {Sharded("0/m/t", Shard("0", 2, "[0, 16]")) +
           ",\"1/m/t\": " + InSlab(2, "[0, 16]"),
       "sharded on one rank"},
      {Sharded("0/m/t", Shard("0", 2, "[0, 16]")) + "," +
           absl::StrReplaceAll(Sharded("1/m/t", Shard("2", 2, "[0, 16]")),
                               {{"float32", "int32"}}),
       "on rank 1"},
  };
  for (const auto& bad : kCases) {
    const TempDir dir;
    EXPECT_THAT(OpenCheckpoint(Snapshot(dir, bad.entries)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(bad.message)));
  }
}

TEST(TorchSnapshotOpener, RefusesRangesOutsideOfFiles) {
  const struct {
    std::string entry;
    StatusCode code;
    std::string message;
  } kCases[] = {
      {InSlab(2, "[56, 72]"), StatusCode::kDataLoss,
       "w of rank 0: byte_range [56, 72] reaches"},
      {InSlab(2, "[9223372036854775791, 9223372036854775807]"),
       StatusCode::kDataLoss, "past the end of slab, which has 64 bytes"},
      {InSlab(4, "null"), StatusCode::kDataLoss,
       "slab has 64 bytes, but float32 [4, 2] has 32"},
      {absl::StrReplaceAll(InSlab(2, "[0, 16]"), {{"slab", "absent"}}),
       StatusCode::kNotFound, "absent"},
      {absl::StrReplaceAll(InSlab(2, "[0, 16]"),
                           {{"buffer_protocol", "torch_save"}}),
       StatusCode::kDataLoss, "slab"},
      {R"({"type": "object", "location": "slab", "serializer": "torch_save"})",
       StatusCode::kDataLoss, "slab"},
      {R"({"type": "ChunkedTensor", "dtype": "torch.float32", "shape": [3, 2],
           "chunks": []})",
       StatusCode::kDataLoss, "w"},
      {R"({"type": "bool", "serialized_value": "true"})", StatusCode::kDataLoss,
       "'true' is not a bool"},
      {R"({"type": "int", "serialized_value": "0x10"})", StatusCode::kDataLoss,
       "'0x10' is not an int"},
      {R"({"type": "float", "serialized_value": "AAAA"})",
       StatusCode::kDataLoss, "'AAAA' is not a float"},
      {R"({"type": "bytes", "serialized_value": "!"})", StatusCode::kDataLoss,
       "'!' is not a bytes"},
  };
  for (const auto& bad : kCases) {
    const TempDir dir;
    EXPECT_THAT(
        OpenCheckpoint(Snapshot(dir, absl::StrCat("\"0/w\": ", bad.entry))),
        StatusIs(bad.code, HasSubstr(bad.message)))
        << bad.entry;
  }
}

TEST(TorchSnapshotOpener, ReadsArchivesInsideAFile) {
  const TempDir dir;
  ValueArena arena;
  const std::string object =
      TorchArchiveBytes(arena.List({Value::Int(1), Value::Int(2)}), {});
  const std::string tensor =
      TorchArchiveBytes(MakeTensor(arena, DType::kFloat32, {2, 2}, false, "0"),
                        {BytesOf<float>({1, 2, 3, 4})});
  dir.WriteFile("s/both", absl::StrCat("gap", object, tensor));
  const auto range = [](size_t begin, size_t length) {
    return absl::StrCat("[", begin, ", ", begin + length, "]");
  };
  const std::string entries = absl::StrReplaceAll(
      absl::StrCat(R"("0/o": {"type": "object", "location": "slab",
                              "serializer": "torch_save", "byte_range": )",
                   range(3, object.size()), R"(}, "0/w": )",
                   InSlab(2, range(3 + object.size(), tensor.size()))),
      {{"\"slab\"", "\"both\""}, {"buffer_protocol", "torch_save"}});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(Snapshot(dir, entries)));
  EXPECT_EQ(ToString(*GetEntry(*checkpoint, "o").object(), 60), "[1, 2]");
  ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAll(*checkpoint));
  EXPECT_EQ(loaded.at("w"), BytesOf<float>({1, 2, 3, 4}));
  // A second object in the same bytes.
  EXPECT_THAT(OpenCheckpoint(Snapshot(
                  dir, absl::StrCat(entries, ",",
                                    absl::StrReplaceAll(
                                        entries, {{"0/", "0/again/"}})))),
              StatusIs(StatusCode::kDataLoss, HasSubstr("overlap")));
  // Another type than the manifest says.
  EXPECT_THAT(
      OpenCheckpoint(
          Snapshot(dir, absl::StrReplaceAll(entries, {{"float32", "int32"}}))),
      StatusIs(StatusCode::kDataLoss,
               HasSubstr("both holds float32 [2, 2], but the manifest says "
                         "int32 [2, 2]")));
}

TEST(TorchSnapshotOpener, RefusesNamesThatCollide) {
  const struct {
    std::string entries;
    std::string message;
  } kCases[] = {
      {R"("0/a/b": {"type": "int", "serialized_value": "1"},
          "0/a.b": {"type": "int", "serialized_value": "1"})",
       "rank 0 has two values of this name"},
      {R"("0/a": {"type": "int", "serialized_value": "1"},
          "1/a": {"type": "int", "serialized_value": "2"},
          "0/a@1": {"type": "int", "serialized_value": "3"})",
       "a@1 is the name of a value"},
      {R"("0/a": {"type": "int", "serialized_value": "1"},
          "0/a/b": {"type": "int", "serialized_value": "2"})",
       "path a"},
      {R"("0/l": {"type": "list"},
          "0/l/999999999999": {"type": "int", "serialized_value": "1"})",
       "list index 999999999999"},
  };
  for (const auto& bad : kCases) {
    const TempDir dir;
    EXPECT_THAT(OpenCheckpoint(Snapshot(dir, bad.entries)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(bad.message)))
        << bad.entries;
  }
}

TEST(TorchSnapshotOpener, RefusesYaml) {
  const TempDir dir;
  dir.WriteFile(absl::StrCat("s/", kManifest), "manifest:\n  0/a:\n");
  EXPECT_THAT(OpenCheckpoint(dir.Join("s")),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("YAML")));
}

// A changed byte makes another snapshot or a malformed one; the error says
// which, and is never the caller's mistake.
TEST(TorchSnapshotOpener, BlamesTheFileForChangedBytesInTheManifest) {
  const TempDir dir;
  const std::string path =
      CopyGolden(dir, "dialects/torchsnapshot/sharded_ws3");
  const std::string name = absl::StrCat(path, "/", kManifest);
  const std::string manifest = ReadText(name);
  constexpr StatusCode kExpected[] = {StatusCode::kOk, StatusCode::kDataLoss,
                                      StatusCode::kUnimplemented,
                                      StatusCode::kNotFound};
  int num_refused = 0;
  for (size_t at = 0; at < manifest.size(); at += 83) {
    for (const char c : {'"', '9', '-', '{', ']', '%', '.'}) {
      std::string changed = manifest;
      changed[at] = c;
      std::ofstream(name, std::ios::binary) << changed;
      const StatusCode code = OpenCheckpoint(path).status().code();
      EXPECT_THAT(kExpected, Contains(code)) << c << " at " << at;
      num_refused += code == StatusCode::kOk ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 100);
}

// Every prefix of a real manifest, and a slab that is cut short.
TEST(TorchSnapshotOpener, RefusesTruncatedFiles) {
  const TempDir dir;
  const std::string path =
      CopyGolden(dir, "dialects/torchsnapshot/sharded_ws3");
  const std::string manifest = ReadText(absl::StrCat(path, "/", kManifest));
  for (size_t size = 0; size + 2 < manifest.size(); size += 37) {
    std::ofstream(absl::StrCat(path, "/", kManifest), std::ios::binary)
        << manifest.substr(0, size);
    EXPECT_FALSE(OpenCheckpoint(path).ok()) << size;
  }
  std::ofstream(absl::StrCat(path, "/", kManifest), std::ios::binary)
      << manifest;
  EXPECT_OK(OpenCheckpoint(path));
  for (const auto& slab :
       std::filesystem::directory_iterator(path + "/batched")) {
    std::filesystem::resize_file(slab.path(), 20);
  }
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(StatusCode::kDataLoss, HasSubstr("which has 20 bytes")));
}

}  // namespace
}  // namespace dcp
