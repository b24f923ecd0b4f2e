// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_line.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'769'860'800'123);

std::string Json(absl::string_view event) {
  return LogLine(LogSeverity::kWarning, event, kTime, {.json = true});
}

TEST(LogLine, IsReadable) {
  EXPECT_EQ(LogLine(LogSeverity::kInfo, "event=call code=OK", kTime, {}),
            "2026-01-31T12:00:00.123Z I event=call code=OK\n");
}

TEST(LogLine, IsJson) {
  EXPECT_EQ(Json("event=call code=OK"),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\","
            "\"event\":\"call\",\"code\":\"OK\"}\n");
}

TEST(LogLine, JsonValuesAreUnquoted) {
  const std::string odd = "a \"b\"\\c\n\x01 = d";
  EXPECT_EQ(
      Json(absl::StrCat("event=x message=", LogText(odd), " last=1")),
      "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\","
      "\"event\":\"x\",\"message\":\"a \\\"b\\\"\\\\c\\u000a\\u0001 = d\","
      "\"last\":1}\n");
}

TEST(LogLine, OnlyNumbersBecomeJsonNumbers) {
  EXPECT_EQ(Json(absl::StrCat("event=x bytes=73400320 seconds=0.021 offset=-3",
                              " client=", LogText("42"), " version=1.2.3")),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\","
            "\"event\":\"x\",\"bytes\":73400320,\"seconds\":0.021,"
            "\"offset\":-3,\"client\":\"42\",\"version\":\"1.2.3\"}\n");
}

TEST(LogLine, PlainTextIsAMessage) {
  EXPECT_EQ(Json("something happened = 1"),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\","
            "\"message\":\"something happened = 1\"}\n");
  EXPECT_EQ(Json(""),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\"}\n");
  EXPECT_EQ(Json("event=x why=\"torn"),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\","
            "\"event\":\"x\",\"why\":\"\\\"torn\"}\n");
}

}  // namespace
}  // namespace dcp::server
