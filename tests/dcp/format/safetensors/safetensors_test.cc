// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/safetensors.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/dcp/format/zip_builder.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::Le64;
using ::dcp::testing::MemoryItem;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr absl::string_view kA =
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

std::string File(absl::string_view json, uint64_t data_length) {
  return absl::StrCat(Le64(json.size()), json, std::string(data_length, 'd'));
}

absl::StatusOr<SafetensorsHeader> ReadHeader(absl::string_view bytes) {
  const MemoryItem item(bytes);
  return ReadSafetensorsHeader(item.length(), item);
}

TEST(Safetensors, ReadsTensorsInTheirOrderInTheFile) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"shape":[2,3],"dtype":"BF16","data_offsets":[8,20]},)"
      R"("c":{"dtype":"U8","shape":[0,7],"data_offsets":[8,8]},)"
      R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8],"new":[{"x":1}]}})";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ReadHeader(File(json, 20)));
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kFloat64);
  EXPECT_EQ(header.tensors[0].shape, Dims({}));
  EXPECT_EQ(header.tensors[1].name, "c");
  EXPECT_EQ(header.tensors[1].shape, Dims({0, 7}));
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.tensors[2].shape, Dims({2, 3}));
  EXPECT_EQ(header.tensors[2].begin, 8u);
  EXPECT_EQ(header.tensors[2].end, 20u);
  EXPECT_EQ(header.data_offset, 8 + json.size());
  EXPECT_THAT(header.metadata,
              UnorderedElementsAre(
                  std::pair<std::string, std::string>("format", "pt")));
  EXPECT_TRUE(header.saved_offsets.empty());
}

TEST(Safetensors, ReadsAnEmptyFile) {
  EXPECT_OK(ReadHeader(File("{}", 0)));
  EXPECT_OK(ReadHeader(File("{}    ", 0)));
  EXPECT_OK(ReadHeader(File(R"({"__metadata__":{}})", 0)));
}

// The reference reader does so, too.
TEST(Safetensors, ReadsLeadingSpacesAndNullMetadata) {
  EXPECT_OK(ReadHeader(File(" \n\t{} ", 0)));
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ReadHeader(File(absl::StrCat(R"(  {"__metadata__":null,)", kA, "}"), 8)));
  EXPECT_EQ(header.tensors.size(), 1u);
  EXPECT_TRUE(header.metadata.empty());
  EXPECT_THAT(
      ReadHeader(File(
          absl::StrCat(R"({"__metadata__":null,"__metadata__":{},)", kA, "}"),
          8)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("occurs twice")));
  EXPECT_THAT(ReadHeader(File(R"({"a":null})", 0)),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Safetensors, CountsFloat4AsTorchDoes) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ReadHeader(File(
          R"({"a":{"dtype":"F4","shape":[2,6],"data_offsets":[0,6]}})", 6)));
  EXPECT_EQ(header.tensors[0].dtype, DType::kFloat4E2M1FNX2);
  EXPECT_EQ(header.tensors[0].shape, Dims({2, 3}));
  const std::string written = WriteSafetensorsHeader(header.tensors, {});
  EXPECT_THAT(written, HasSubstr("\"shape\":[2,6]"));
}

TEST(Safetensors, ReadsShardingInfo) {
  const std::string json =
      R"({"__metadata__":{"DCP_SHARDING_INFO":)"
      R"("{\"a\": {\"saved_offsets\": [7], \"new\": [1, {}]},)"
      R"( \"elsewhere\": {\"saved_offsets\": [1, 2]}}",)"
      R"("DCP_VERSION":"1.0"},)" +
      std::string(kA) + "}";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ReadHeader(File(json, 8)));
  ASSERT_EQ(header.saved_offsets.size(), 1u);
  EXPECT_EQ(header.saved_offsets.at("a"), Dims({7}));
}

std::string WithShardingInfo(absl::string_view info) {
  std::string quoted;
  for (const char c : info) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return absl::StrCat(R"({"__metadata__":{"DCP_SHARDING_INFO":")", quoted,
                      R"("},)", kA, "}");
}

struct SafetensorsCorruption {
  const char* name;
  std::string json;
  uint64_t data_length;
  const char* message;
};

std::string A(absl::string_view dtype, absl::string_view shape,
              absl::string_view offsets) {
  return absl::StrCat(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}}");
}

// Texts that are not a header's JSON.
std::vector<SafetensorsCorruption> BadSyntax() {
  const std::string a(kA);
  return {
      {"not JSON", "{nope", 8, "not valid JSON"},
      {"an array", "[1,2]", 8, "header"},
      {"byte order mark", "\xEF\xBB\xBF{" + a + "}", 8, "byte order mark"},
      {"not UTF-8", "{\"\xff\":1}", 8, "not valid JSON"},
      {"deep", "{\"a\":" + std::string(100000, '['), 8, "unexpected type"},
      {"deep in an unknown field", "{\"a\":{\"x\":" + std::string(100000, '['),
       8, "deeper"},
      {"text behind", "{" + a + "}x", 8, "not valid JSON"},
  };
}

// Tensors that do not fill the data.
std::vector<SafetensorsCorruption> BadTiling() {
  const std::string a(kA);
  const std::string b_hole =
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[16,24]})";
  const std::string b_overlap =
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})";
  return {
      {"hole", "{" + a + "," + b_hole + "}", 24,
       "the data before it ends at 8"},
      {"overlap", "{" + a + "," + b_overlap + "}", 16,
       "the data before it ends at 8"},
      {"tail", "{" + a + "}", 16, "8 bytes, but the data section has 16"},
      {"truncated", "{" + a + "}", 5, "8 bytes, but the data section has 5"},
      {"hole before the first", A("\"F32\"", "[2]", "[8,16]"), 16,
       "the data before it ends at 0"},
      {"end before begin", A("\"F32\"", "[2]", "[8,0]"), 8, "are not those"},
      {"shape and length", A("\"F32\"", "[3]", "[0,8]"), 8, "are not those"},
  };
}

// Shapes and offsets that are not lists of numbers.
std::vector<SafetensorsCorruption> BadNumbers() {
  return {
      {"negative shape", A("\"F32\"", "[-2]", "[0,8]"), 8, "unexpected type"},
      {"negative offset", A("\"F32\"", "[2]", "[-8,0]"), 8, "unexpected type"},
      {"shape overflows", A("\"F32\"", "[8589934592,8589934592]", "[0,8]"), 8,
       "are not those"},
      {"length overflows", A("\"F64\"", "[2305843009213693952]", "[0,0]"), 0,
       "are not those"},
      {"offset beyond 64 bits",
       A("\"F32\"", "[2]", "[0,1180591620717411303424]"), 8, "unexpected type"},
      {"fractional shape", A("\"F32\"", "[2.5]", "[0,8]"), 8,
       "unexpected type"},
      {"nested shape", A("\"F32\"", "[[2]]", "[0,8]"), 8, "unexpected type"},
      {"shape is a number", A("\"F32\"", "2", "[0,8]"), 8, "unexpected type"},
      {"shape is an object", A("\"F32\"", "{\"x\":2}", "[0,8]"), 8,
       "unexpected type"},
      {"65 dimensions",
       A(
           "\"F32\"",
           "[2" +
               [] {
                 std::string ones;
                 for (int i = 0; i < 64; ++i) ones += ",1";
                 return ones;
               }() +
               "]",
           "[0,8]"),
       8, "more than 64 numbers"},
      {"three offsets", A("\"F32\"", "[2]", "[0,8,8]"), 8,
       "more than 2 numbers"},
      {"one offset", A("\"F32\"", "[2]", "[8]"), 8,
       "lacks its dtype, shape or data_offsets"},
  };
}

// Other fields in tensors.
std::vector<SafetensorsCorruption> BadFields() {
  const std::string a(kA);
  return {
      {"unknown dtype", A("\"F31\"", "[2]", "[0,8]"), 8, "dtype F31"},
      {"sub-byte dtype", A("\"F6_E2M3\"", "[4]", "[0,3]"), 3, "dtype F6_E2M3"},
      {"odd float4", A("\"F4\"", "[3]", "[0,2]"), 2, "whole bytes"},
      {"float4 scalar", A("\"F4\"", "[]", "[0,1]"), 1, "whole bytes"},
      {"dtype is a number", A("32", "[2]", "[0,8]"), 8, "unexpected type"},
      {"missing field", R"({"a":{"dtype":"F32","shape":[2]}})", 8,
       "lacks its dtype, shape or data_offsets"},
      {"field twice",
       R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],)"
       R"("data_offsets":[0,8]}})",
       8, "its dtype twice"},
      {"tensor is a number", R"({"a":1})", 8, "unexpected type"},
      {"tensor is null", R"({"a":null})", 8, "unexpected type"},
      {"name twice", "{" + a + "," + a + "}", 8, "a occurs twice"},
      {"empty tensor twice",
       R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
       R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "a occurs twice"},
      {"long name",
       "{\"" + std::string(70000, 'n') +
           R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "exceeds 65536"},
  };
}

// Metadata that is not text by key.
std::vector<SafetensorsCorruption> BadMetadata() {
  const std::string a(kA);
  return {
      {"metadata number", "{\"__metadata__\":{\"k\":1}," + a + "}", 8,
       "is not a string"},
      {"metadata is text", "{\"__metadata__\":\"k\"," + a + "}", 8,
       "unexpected type"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0,
       "__metadata__ occurs twice"},
      {"metadata key twice", R"({"__metadata__":{"k":"","k":""}})", 0,
       "__metadata__ has k twice"},
  };
}

// Sharding information that does not fit the tensors.
std::vector<SafetensorsCorruption> BadShardingInfo() {
  return {
      {"sharding info negative",
       WithShardingInfo(R"({"a":{"saved_offsets":[-1]}})"), 8,
       "unexpected type"},
      {"sharding info dimensions",
       WithShardingInfo(R"({"a":{"saved_offsets":[0,0]}})"), 8,
       "impossible offsets for a"},
      {"sharding info overflows",
       WithShardingInfo(R"({"a":{"saved_offsets":[9223372036854775807]}})"), 8,
       "impossible offsets for a"},
      {"sharding info lacks a tensor", WithShardingInfo("{}"), 8, "lacks a"},
      {"sharding info lacks offsets", WithShardingInfo(R"({"a":{}})"), 8,
       "lacks saved_offsets"},
      {"sharding info not JSON", WithShardingInfo("{"), 8,
       "DCP_SHARDING_INFO: not valid JSON"},
      {"sharding info is an array", WithShardingInfo("[]"), 8,
       "unexpected type"},
      {"sharding info twice",
       WithShardingInfo(
           R"({"a":{"saved_offsets":[0]},"a":{"saved_offsets":[0]}})"),
       8, "a occurs twice"},
  };
}

TEST(Safetensors, RefusesCorruption) {
  for (const auto& corruptions :
       {BadSyntax(), BadTiling(), BadNumbers(), BadFields(), BadMetadata(),
        BadShardingInfo()}) {
    for (const SafetensorsCorruption& corruption : corruptions) {
      const absl::StatusOr<SafetensorsHeader> result =
          ReadHeader(File(corruption.json, corruption.data_length));
      EXPECT_FALSE(result.ok()) << corruption.name;
      EXPECT_THAT(result.status().message(), HasSubstr(corruption.message))
          << corruption.name;
    }
  }
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_THAT(ReadHeader(""), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadHeader("1234567"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadHeader(Le64(0)), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(
      ReadHeader(Le64(3) + "{}"),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("header length 3 does not fit into a file of 10")));
  EXPECT_THAT(
      ReadHeader(Le64(uint64_t{1} << 63) + "{}"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("exceeds 100000000")));
}

TEST(Safetensors, WritesTheBytesThatItReads) {
  const std::vector<SafetensorsTensor> tensors = {
      {"odd \"name\"\n\xc3\xa9", DType::kFloat32, {2, 3}, 0, 24},
      {"scalar", DType::kInt64, {}, 24, 32},
      {"empty", DType::kBool, {0}, 32, 32}};
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"format", "pt"}, {"DCP_VERSION", "1.0"}};
  const std::string written = WriteSafetensorsHeader(tensors, metadata);
  EXPECT_EQ(written.size() % 8, 0u);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ReadHeader(written + std::string(32, 'd')));
  EXPECT_EQ(header.data_offset, written.size());
  EXPECT_EQ(header.metadata, metadata);
  ASSERT_EQ(header.tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(header.tensors[i].name, tensors[i].name);
    EXPECT_EQ(header.tensors[i].dtype, tensors[i].dtype);
    EXPECT_EQ(header.tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(header.tensors[i].begin, tensors[i].begin);
    EXPECT_EQ(header.tensors[i].end, tensors[i].end);
  }
}

// A file with two tensors; the header has digests 1 and 2.
std::string WithDigests() {
  const std::vector<SafetensorsTensor> tensors = {
      {.name = "a", .dtype = DType::kUInt8, .shape = {1}, .begin = 0, .end = 1},
      {.name = "b",
       .dtype = DType::kUInt8,
       .shape = {1},
       .begin = 1,
       .end = 2}};
  std::string header =
      WriteSafetensorsHeader(tensors, {{"format", "pt"}}, true);
  const size_t size = header.size();
  PutSafetensorsDigests({1, 2}, header);
  EXPECT_EQ(header.size(), size);
  return header + "xy";
}

TEST(SafetensorsDigests, ComeBackAndAreNotInTheMetadata) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                       ReadHeader(WithDigests()));
  EXPECT_EQ(header.digests, (std::vector<uint64_t>{1, 2}));
  EXPECT_THAT(header.metadata, ElementsAre(std::pair("format", "pt")));
  EXPECT_EQ(header.data_offset % 8, 0u);
}

// Also bits in a name, in the padding, in the digests' key.
TEST(SafetensorsDigests, EveryFlippedBitOfAHeaderIsFound) {
  const std::string ours = WithDigests();
  const size_t header_bytes = ours.size() - 2;
  const size_t of_tensors = ours.find("xxh3-64:") + 8 + 16;
  for (size_t bit = 0; bit < 8 * header_bytes; ++bit) {
    const size_t i = bit / 8;
    std::string changed = ours;
    changed[i] = static_cast<char>(changed[i] ^ (1 << bit % 8));
    const absl::StatusOr<SafetensorsHeader> header = ReadHeader(changed);
    if (!header.ok()) continue;
    // A tensor's digest then differs from the digest over the bytes.
    const bool of_a_tensor = i >= of_tensors && i < of_tensors + 2 * 16;
    if (of_a_tensor && header->damage.empty()) {
      EXPECT_NE(header->digests, (std::vector<uint64_t>{1, 2})) << bit;
    } else {
      EXPECT_THAT(header->damage, HasSubstr("the header is damaged")) << bit;
    }
  }
}

TEST(SafetensorsDigests, StillCountInADamagedHeader) {
  std::string bytes = WithDigests();
  bytes[bytes.find("\"b\"") + 1] = 'c';
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ReadHeader(bytes));
  EXPECT_THAT(header.damage, HasSubstr("recorded"));
  EXPECT_EQ(header.digests, (std::vector<uint64_t>{1, 2}));
}

// It writes the same with as little padding as possible.
TEST(SafetensorsDigests, AreIgnoredWhenCopiedByAnotherProgram) {
  const std::string ours = WithDigests();
  std::string theirs = ours.substr(0, ours.size() - 2 - 8) + "xy";
  theirs[0] = static_cast<char>(theirs[0] - 8);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ReadHeader(theirs));
  EXPECT_TRUE(header.digests.empty());
  EXPECT_EQ(header.damage, "");
  EXPECT_THAT(header.metadata, ElementsAre(std::pair("format", "pt")));
}

// As in a store that cannot change objects.
TEST(SafetensorsDigests, AreAbsentIfNeverFilledIn) {
  std::string bytes = WithDigests();
  const size_t begin = bytes.find("xxh3-64:") + 8;
  bytes.replace(begin, 3 * 16, std::string(3 * 16, '0'));
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ReadHeader(bytes));
  EXPECT_TRUE(header.digests.empty());
  EXPECT_EQ(header.damage, "");
}

TEST(SafetensorsDigests, AreKeptWithAFlippedBit) {
  std::string bytes = WithDigests();
  const size_t at = bytes.find("0000000000000002");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 15] = '3';
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ReadHeader(bytes));
  EXPECT_EQ(header.digests, (std::vector<uint64_t>{1, 3}));
}

TEST(SafetensorsDigests, AreIgnoredWithAnotherCountOrForm) {
  for (const char* value :
       {"", "xxh3-64:", "xxh3-64:0000000000000000", "sha256:00"}) {
    const std::vector<SafetensorsTensor> tensors = {{.name = "a",
                                                     .dtype = DType::kUInt8,
                                                     .shape = {1},
                                                     .begin = 0,
                                                     .end = 1}};
    ASSERT_OK_AND_ASSIGN(
        const SafetensorsHeader header,
        ReadHeader(
            WriteSafetensorsHeader(
                tensors, {{std::string(kSafetensorsDigestsKey), value}}) +
            "x"));
    EXPECT_TRUE(header.digests.empty()) << value;
    EXPECT_TRUE(header.metadata.empty()) << value;
  }
}

TEST(Safetensors, WritesEmptyHeaders) {
  EXPECT_EQ(WriteSafetensorsHeader({}, {}), Le64(8) + "{}      ");
  EXPECT_OK(ReadHeader(WriteSafetensorsHeader({}, {{"a", "b"}})));
}

}  // namespace
}  // namespace dcp
