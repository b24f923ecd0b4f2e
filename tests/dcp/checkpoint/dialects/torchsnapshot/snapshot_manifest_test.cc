// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_manifest.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/bytes.h"
#include "dcp/format/torch/state_path.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;
using Kind = SnapshotEntry::Kind;
using Form = SnapshotTensor::Form;

absl::StatusOr<SnapshotManifest> Parse(const std::string& text) {
  return ParseSnapshotManifest(
      text.size(), [&](uint64_t offset, uint64_t length) {
        return absl::StatusOr<ByteSpan>(AsBytes(text).subspan(offset, length));
      });
}

// A manifest with these entries, for a world with two ranks.
std::string With(absl::string_view entries) {
  return absl::StrCat(R"({"version": "0.1.0", "world_size": 2, "manifest": {)",
                      entries, "}}");
}

constexpr absl::string_view kTensor = R"("0/model/w": {
  "type": "Tensor", "location": "batched/a", "serializer": "buffer_protocol",
  "dtype": "torch.float32", "shape": [2, 3], "replicated": true,
  "byte_range": [16, 40]})";

constexpr absl::string_view kManifestSharded = R"("1/model/t": {
  "type": "ShardedTensor", "mesh": [[0, 1], [2, 3]], "shards": [
    {"offsets": [4, 0], "sizes": [2, 3], "tensor": {
      "type": "Tensor", "location": "batched/a", "dtype": "torch.float32",
      "serializer": "buffer_protocol", "shape": [2, 3], "byte_range": null}}]})";

TEST(SnapshotManifest, DescribesATensorInASlab) {
  ASSERT_OK_AND_ASSIGN(const SnapshotManifest manifest, Parse(With(kTensor)));
  EXPECT_EQ(manifest.version, "0.1.0");
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_THAT(manifest.files, ElementsAre("batched/a"));
  ASSERT_THAT(manifest.entries, SizeIs(1));
  const SnapshotEntry& entry = manifest.entries[0];
  EXPECT_EQ(entry.kind, Kind::kTensor);
  EXPECT_EQ(entry.rank, 0);
  EXPECT_TRUE(entry.is_replicated);
  EXPECT_EQ(PathToName(entry.path), "model.w");
  EXPECT_EQ(entry.tensor.dtype, DType::kFloat32);
  EXPECT_THAT(entry.tensor.shape, ElementsAre(2, 3));
  EXPECT_EQ(entry.tensor.form, Form::kRaw);
  EXPECT_FALSE(entry.tensor.range.is_whole);
  EXPECT_EQ(entry.tensor.range.begin, 16);
  EXPECT_EQ(entry.tensor.range.end, 40);
}

TEST(SnapshotManifest, DescribesShardsInTheOrderOfRanks) {
  ASSERT_OK_AND_ASSIGN(
      const SnapshotManifest manifest,
      Parse(With(absl::StrCat(kManifestSharded, ",", kTensor))));
  ASSERT_THAT(manifest.entries, SizeIs(2));
  EXPECT_EQ(manifest.entries[0].rank, 0);
  const SnapshotEntry& entry = manifest.entries[1];
  EXPECT_EQ(entry.kind, Kind::kSharded);
  EXPECT_EQ(entry.rank, 1);
  EXPECT_EQ(entry.tensor.dtype, DType::kFloat32);
  ASSERT_THAT(entry.pieces, SizeIs(1));
  EXPECT_THAT(entry.pieces[0].box.offsets, ElementsAre(4, 0));
  EXPECT_THAT(entry.pieces[0].box.sizes, ElementsAre(2, 3));
  EXPECT_TRUE(entry.pieces[0].tensor.range.is_whole);
  EXPECT_THAT(manifest.files, SizeIs(1));
}

TEST(SnapshotManifest, KeysAreDecodedAndListsHaveIndices) {
  ASSERT_OK_AND_ASSIGN(const SnapshotManifest manifest,
                       Parse(With(R"("0/p/a%2Fb/c%25d": {"type": "int",
                                        "serialized_value": "7"},
                    "0/p/list/0": {"type": "str", "serialized_value": ""},
                    "1/p/list/0": {"type": "bool", "serialized_value": "True"},
                    "0/p": {"type": "dict", "keys": ["a/b", 0]},
                    "0/p/list": {"type": "list"})")));
  ASSERT_THAT(manifest.entries, SizeIs(3));
  EXPECT_THAT(
      manifest.entries[0].path,
      ElementsAre(PathElement("p"), PathElement("a/b"), PathElement("c%d")));
  EXPECT_EQ(manifest.entries[0].text, "7");
  EXPECT_EQ(manifest.entries[1].path.back(), PathElement(int64_t{0}));
  EXPECT_THAT(
      manifest.lists,
      ElementsAre(Pair(0, ElementsAre(PathElement("p"), PathElement("list")))));
  // Rank 1 does not say that it is a list.
  EXPECT_EQ(manifest.entries[2].path.back(), PathElement("0"));
}

TEST(SnapshotManifest, QuantizedTensorsNeedNoKnownType) {
  ASSERT_OK_AND_ASSIGN(
      const SnapshotManifest manifest,
      Parse(With(R"("0/q": {"type": "Tensor", "location": "q", "shape": [1],
          "serializer": "per_tensor_qtensor", "dtype": "torch.qint8"})")));
  EXPECT_EQ(manifest.entries[0].tensor.form, Form::kQuantized);
}

struct Corruption {
  std::string name;
  std::string text;
  std::string message;
};

// `good` with a part replaced, which must be there.
std::string Edited(absl::string_view good, absl::string_view from,
                   absl::string_view to) {
  EXPECT_NE(good.find(from), absl::string_view::npos) << from;
  return With(absl::StrReplaceAll(good, {{from, to}}));
}

TEST(SnapshotManifest, RefusesNumbersThatDoNotFit) {
  const std::vector<Corruption> corruptions = {
      {"reversed range", Edited(kTensor, "[16, 40]", "[40, 16]"),
       "0/model/w: byte_range [40, 16] is not a begin and an end"},
      {"range of one number", Edited(kTensor, "[16, 40]", "[16]"),
       "byte_range [16]"},
      {"range of three numbers", Edited(kTensor, "[16, 40]", "[1, 2, 3]"),
       "more than 2"},
      {"range of another length", Edited(kTensor, "[16, 40]", "[16, 41]"),
       "byte_range has 25 bytes, but float32 [2, 3] has 24"},
      {"negative range", Edited(kTensor, "[16, 40]", "[-8, 16]"), "byte_range"},
      {"negative size", Edited(kTensor, "[2, 3]", "[-2, 3]"), "shape"},
      {"2^62 elements", Edited(kTensor, "[2, 3]", "[4611686018427387904, 3]"),
       "exceeds 64 bits"},
      {"no shape", Edited(kTensor, "\"shape\": [2, 3],", ""), "no shape"},
      {"negative offset", Edited(kManifestSharded, "[4, 0]", "[-4, 0]"),
       "offsets"},
      {"offset beyond 64 bits",
       Edited(kManifestSharded, "[4, 0]", "[9223372036854775807, 0]"),
       "a piece of sizes [2, 3] at [9223372036854775807, 0]"},
      {"other sizes",
       Edited(kManifestSharded, "\"sizes\": [2, 3]", "\"sizes\": [3, 2]"),
       "a piece of sizes [3, 2] at [4, 0] consists of a tensor of shape [2, "
       "3]"},
      {"other number of dimensions", Edited(kManifestSharded, "[4, 0]", "[4]"),
       "at [4] consists"},
      {"piece without tensor",
       Edited(kManifestSharded, "\"tensor\"", "\"tensors\""),
       "a piece has no tensor"},
  };
  for (const Corruption& corruption : corruptions) {
    EXPECT_THAT(Parse(corruption.text),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)))
        << corruption.name;
  }
}

TEST(SnapshotManifest, RefusesPathsThatLeadElsewhere) {
  const std::vector<Corruption> corruptions = {
      {"code cut short", Edited(kTensor, "model/w", "model/w%2"), "found '%2'"},
      {"code that is not hex", Edited(kTensor, "model/w", "w%zz"), "'%zz'"},
      {"control character", Edited(kTensor, "model/w", "w%00"), "'%00'"},
      {"no rank", Edited(kTensor, "0/model", "model"), "begin with a rank"},
      {"negative rank", Edited(kTensor, "0/model", "-1/model"), "a rank"},
      {"empty rank", Edited(kTensor, "0/model", "/model"), "a rank"},
      {"huge rank", Edited(kTensor, "0/m", "99999999999999999999/m"), "a rank"},
      {"rank out of range", Edited(kTensor, "0/model", "2/model"),
       "there is an entry of rank 2, but the world size is 2"},
      {"rank alone", Edited(kTensor, "0/model/w", "0"), "no name"},
      {"list of everything", With(R"("0": {"type": "list"})"), "is a list"},
      {"no value", With(R"("0/a": {"type": "int"})"), "no serialized_value"},
  };
  for (const Corruption& corruption : corruptions) {
    EXPECT_THAT(Parse(corruption.text),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)))
        << corruption.name;
  }
  for (const absl::string_view location :
       {"../a", "/etc/passwd", "a/../../b", "", "a//b", "."}) {
    EXPECT_THAT(Parse(Edited(kTensor, "\"batched/a\"",
                             absl::StrCat("\"", location, "\""))),
                StatusIs(StatusCode::kDataLoss, HasSubstr("file name")))
        << location;
  }
  EXPECT_THAT(Parse(Edited(kTensor, "model/w", std::string(70000, 'w'))),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("exceeds")));
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "a/";
  EXPECT_THAT(Parse(Edited(kTensor, "model/w", deep + "w")),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("100 keys")));
}

TEST(SnapshotManifest, RefusesOtherTexts) {
  const std::vector<Corruption> corruptions = {
      {"not JSON", "---\nmanifest: {}", "not valid JSON"},
      {"a list", "[]", "manifest"},
      {"empty", "{}", "no manifest"},
      {"no ranks", R"({"manifest": {}})", "no world_size"},
      {"0 ranks", R"({"world_size": 0, "manifest": {}})", "world_size"},
      {"negative ranks", R"({"world_size": -1, "manifest": {}})", "world_size"},
      {"many ranks", R"({"world_size": 1000000000, "manifest": {}})",
       "world_s"},
      {"twice", R"({"manifest": {}, "manifest": {}})", "twice"},
      {"manifest is a list", R"({"manifest": []})", "manifest"},
      {"entry is a text", With(R"("0/a": "int")"), "0/a"},
      {"replicated is a text",
       With(R"("0/a": {"type": "int", "replicated": "yes"})"), "replicated"},
      {"shards are an object", With(R"("0/a": {"shards": {"offsets": []}})"),
       "shards"},
      {"shards are numbers", With(R"("0/a": {"shards": [1]})"), "shards"},
      {"pieces of other types",
       Edited(absl::StrReplaceAll(kManifestSharded,
                                  {{"\"ShardedTensor\"",
                                    "\"ChunkedTensor\", \"shape\": [6, 3], "
                                    "\"dtype\": \"torch.int32\""}}),
              "mesh", "mesh"),
       "a piece is float32, but the tensor is int32"},
  };
  for (const Corruption& corruption : corruptions) {
    EXPECT_THAT(Parse(corruption.text),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)))
        << corruption.name;
  }
}

TEST(SnapshotManifest, RefusesUnsupportedEntries) {
  const std::vector<Corruption> corruptions = {
      {"type", With(R"("0/a": {"type": "Quaternion"})"), "type 'Quaternion'"},
      {"no type", With(R"("0/a": {})"), "type ''"},
      {"dtype", Edited(kTensor, "float32", "float33"), "'torch.float33'"},
      {"serializer", Edited(kTensor, "buffer_protocol", "msgpack"),
       "'msgpack'"},
      {"serializer of an object",
       With(R"("0/a": {"type": "object", "location": "o",
                       "serializer": "pickle"})"),
       "'pickle'"},
      {"quantized piece",
       Edited(kManifestSharded, "buffer_protocol", "per_channel_qtensor"),
       "quantized"},
  };
  for (const Corruption& corruption : corruptions) {
    EXPECT_THAT(Parse(corruption.text), StatusIs(StatusCode::kUnimplemented,
                                                 HasSubstr(corruption.message)))
        << corruption.name;
  }
}

}  // namespace
}  // namespace dcp
