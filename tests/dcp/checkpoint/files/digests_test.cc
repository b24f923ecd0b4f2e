// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/digests.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::string_view kHeader = "tessera-digests 1 xxh3-64\n";

std::vector<ChunkDigest> Two() {
  return {{.file = "__1_0.distcp", .offset = 64, .length = 8, .digest = 0xabc},
          {.file = "__0_0.distcp", .offset = 0, .length = 0, .digest = 1}};
}

TEST(Digests, NamesFollowTheSaveId) {
  EXPECT_EQ(DigestsName(""), ".digests");
  EXPECT_EQ(DigestsName("1f"), ".digests-1f");
  EXPECT_TRUE(IsDigestsName(".digests"));
  EXPECT_TRUE(IsDigestsName(".digests-1f"));
  EXPECT_FALSE(IsDigestsName(".digest"));
  EXPECT_FALSE(IsDigestsName(".digestsx"));
}

TEST(Digests, AreWrittenSortedByPlace) {
  EXPECT_EQ(WriteDigests(Two()),
            "tessera-digests 1 xxh3-64\n"
            "0000000000000001 0 0 __0_0.distcp\n"
            "0000000000000abc 64 8 __1_0.distcp\n"
            "end 2\n");
}

TEST(Digests, SortsDigestsOfOnePlace) {
  const ChunkDigest small = {
      .file = "a", .offset = 8, .length = 4, .digest = 2};
  ChunkDigest other = small;
  other.digest = 1;
  ChunkDigest large = small;
  large.length = 5;
  EXPECT_EQ(WriteDigests({large, small, other}),
            WriteDigests({other, small, large}));
}

TEST(Digests, RoundTrip) {
  const std::vector<ChunkDigest> two = Two();
  EXPECT_THAT(ParseDigests(WriteDigests(two)),
              IsOkAndHolds(ElementsAre(two[1], two[0])));
  EXPECT_THAT(ParseDigests(WriteDigests({})), IsOkAndHolds(IsEmpty()));
}

TEST(Digests, FileNamesMayHaveSpaces) {
  const ChunkDigest digest = {
      .file = "a dir/b c", .offset = 1, .length = 2, .digest = 3};
  EXPECT_THAT(ParseDigests(WriteDigests({digest})),
              IsOkAndHolds(ElementsAre(digest)));
}

TEST(Digests, RefusesOtherTexts) {
  struct Case {
    const char* name;
    std::string text;
    const char* message;
  };
  const std::string head(kHeader);
  const Case cases[] = {
      {"empty", "", "the first line"},
      {"other version", "tessera-digests 2 xxh3-64\nend 0\n", "first line"},
      {"no end", head, "cut off after 0"},
      {"end without newline", head + "end 0", "cut off"},
      {"wrong count", head + "end 1\n", "cut off"},
      {"text behind the end", head + "end 0\nmore\n", "cut off"},
      {"few fields", head + "0000000000000001 0\nend 1\n", "line 2"},
      {"short digest", head + "01 0 0 f\nend 1\n", "line 2"},
      {"no hex digits", head + "000000000000000g 0 0 f\nend 1\n", "line 2"},
      {"negative offset", head + "0000000000000001 -1 0 f\nend 1\n", "line 2"},
      {"end beyond 64 bits",
       head + "0000000000000001 18446744073709551615 1 f\nend 1\n", "line 2"},
      {"no file", head + "0000000000000001 0 0 \nend 1\n", "line 2"},
      {"file outside", head + "0000000000000001 0 0 ../f\nend 1\n", "line 2"},
      {"absolute file", head + "0000000000000001 0 0 /f\nend 1\n", "line 2"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.name);
    EXPECT_THAT(ParseDigests(bad.text),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(bad.message)));
  }
}

TEST(Digests, EveryTruncationIsRefused) {
  const std::string text = WriteDigests(Two());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(ParseDigests(text.substr(0, length)),
                StatusIs(absl::StatusCode::kDataLoss))
        << length;
  }
}

}  // namespace
}  // namespace dcp
