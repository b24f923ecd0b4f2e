// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/json.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using EventKind = JsonEvent::Kind;

std::string ToText(const JsonEvent& event) {
  switch (event.kind) {
    case EventKind::kBeginObject:
      return absl::StrCat(event.depth, " {");
    case EventKind::kEndObject:
      return absl::StrCat(event.depth, " }");
    case EventKind::kBeginArray:
      return absl::StrCat(event.depth, " [");
    case EventKind::kEndArray:
      return absl::StrCat(event.depth, " ]");
    case EventKind::kKey:
      return absl::StrCat(event.depth, " key ", event.text);
    case EventKind::kString:
      return absl::StrCat(event.depth, " text ", event.text);
    case EventKind::kUnsigned:
      return absl::StrCat(event.depth, " ", event.number);
    case EventKind::kOtherNumber:
      return absl::StrCat(event.depth, " other");
    case EventKind::kBool:
      return absl::StrCat(event.depth, event.number == 1 ? " true" : " false");
    case EventKind::kNull:
      return absl::StrCat(event.depth, " null");
  }
  return "";
}

// The same whether the text is in memory or read in blocks.
absl::StatusOr<std::vector<std::string>> Events(absl::string_view json) {
  std::vector<std::string> events;
  std::vector<std::string> of_blocks;
  const absl::Status status = ParseJson(json, [&](const JsonEvent& event) {
    events.push_back(ToText(event));
    return absl::OkStatus();
  });
  EXPECT_EQ(ParseJson(
                json.size(),
                [&](uint64_t offset, uint64_t length) {
                  return absl::StatusOr<ByteSpan>(
                      AsBytes(json.substr(offset, length)));
                },
                [&](const JsonEvent& event) {
                  of_blocks.push_back(ToText(event));
                  return absl::OkStatus();
                }),
            status);
  if (!status.ok()) return status;
  EXPECT_EQ(of_blocks, events);
  return events;
}

TEST(Json, ReportsEverythingWithItsDepth) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<std::string> events,
      Events(
          R"( {"a":[18446744073709551615,-1,0.5,true,false],"a":{"b":null}} )"));
  EXPECT_THAT(events,
              ElementsAre("0 {", "1 key a", "1 [", "2 18446744073709551615",
                          "2 other", "2 other", "2 true", "2 false", "1 ]",
                          "1 key a", "1 {", "2 key b", "2 null", "1 }", "0 }"));
}

TEST(Json, NumbersBeyond64BitsAreOtherEvents) {
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> events,
                       Events("[18446744073709551616,1e3]"));
  EXPECT_THAT(events, ElementsAre("0 [", "1 other", "1 other", "0 ]"));
}

TEST(Json, UnescapesText) {
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> events,
                       Events(R"("\u00e9\n\ud83d\ude00\u0000")"));
  EXPECT_EQ(events[0], std::string("0 text \xc3\xa9\n\xf0\x9f\x98\x80\0", 15));
}

struct JsonCorruption {
  const char* name;
  absl::string_view json;
};

const JsonCorruption kJsonCorruptions[] = {
    {"empty", ""},
    {"spaces only", "  "},
    {"two values", "{} {}"},
    {"unclosed object", "{\"a\":1"},
    {"unclosed text", "\"abc"},
    {"comma at the end", "[1,]"},
    {"comment", "/* */ 1"},
    {"single quotes", "'a'"},
    {"NaN", "NaN"},
    {"number out of range", "1e999"},
    {"leading zero", "01"},
    {"raw newline in text", "\"a\nb\""},
    {"bad escape", "\"\\x\""},
    {"lone surrogate", "\"\\ud800\""},
    {"not UTF-8", "\"\xff\""},
    {"overlong UTF-8", "\"\xc0\xaf\""},
    {"NUL behind", absl::string_view("{}\0", 3)},
    {"NUL and more behind", absl::string_view("{}\0{", 4)},
    {"key that is not text", "{1:2}"},
    {"mismatched ends", "[}"},
};

TEST(Json, RefusesCorruption) {
  for (const JsonCorruption& corruption : kJsonCorruptions) {
    EXPECT_THAT(Events(corruption.json),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not valid")))
        << corruption.name;
  }
}

TEST(Json, BoundsItsDepth) {
  const auto nested = [](size_t depth) {
    return absl::StrCat(std::string(depth, '['), std::string(depth, ']'));
  };
  EXPECT_OK(Events(nested(kMaxJsonDepth)));
  for (const size_t depth : {size_t{kMaxJsonDepth} + 1, size_t{1000000}}) {
    EXPECT_THAT(Events(nested(depth)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("deeper")));
  }
}

TEST(Json, StopsWhenTheHandlerFails) {
  int num_events = 0;
  EXPECT_THAT(ParseJson("[1,2,3]",
                        [&](const JsonEvent&) {
                          return ++num_events == 3
                                     ? absl::AbortedError("enough")
                                     : absl::OkStatus();
                        }),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_EQ(num_events, 3);
}

TEST(Json, ReadsATextInBlocks) {
  std::string json = "[";
  while (json.size() < 1000000) absl::StrAppend(&json, json.size(), ",");
  json.back() = ']';
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> events, Events(json));
  EXPECT_EQ(events[1], "1 1");
  EXPECT_EQ(events.back(), "0 ]");
}

TEST(Json, ReturnsTheReadersError) {
  const std::string json = "[" + std::string(1000000, ' ') + "]";
  int num_reads = 0;
  EXPECT_THAT(
      ParseJson(
          json.size(),
          [&](uint64_t offset, uint64_t length) -> absl::StatusOr<ByteSpan> {
            if (++num_reads == 2) return absl::AbortedError("no disk");
            return AsBytes(json).subspan(offset, length);
          },
          [](const JsonEvent&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kAborted, "no disk"));
  EXPECT_EQ(num_reads, 2);
}

TEST(Json, QuotedTextReadsBack) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> events,
                       Events(QuoteJson(all)));
  EXPECT_EQ(events[0], "0 text " + all);
  EXPECT_EQ(QuoteJson("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
}

TEST(Json, QuotesInvalidUtf8AsReplacement) {
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(QuoteJson("\xff"), "\"" + replacement + "\"");
  EXPECT_EQ(QuoteJson("a\xc3"), "\"a" + replacement + "\"");
  // A surrogate as Python's surrogatepass writes it.
  EXPECT_EQ(QuoteJson("\xed\xa0\x80"),
            "\"" + replacement + replacement + replacement + "\"");
  EXPECT_OK(Events(QuoteJson("\xf4\x90\x80\x80\xe0\x80\x80\xc0\xaf\xf8")));
}

}  // namespace
}  // namespace dcp
