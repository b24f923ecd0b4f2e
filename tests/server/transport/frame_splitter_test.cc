// SPDX-License-Identifier: Apache-2.0

#include "server/transport/frame_splitter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/transport/raw_connection.h"

namespace dcp::server {
namespace {

std::string Text(const FrameHead& frame) {
  return absl::StrCat("type ", frame.type, " flags ", frame.flags, " stream ",
                      frame.stream, " length ", frame.length);
}

// The heads that begin and end in the bytes, one a line.
std::string Events(FrameSplitter& splitter, absl::string_view bytes) {
  std::string events;
  splitter.Read(
      bytes,
      [&](const FrameHead& frame) {
        absl::StrAppend(&events, "begin ", Text(frame), "\n");
        return true;
      },
      [&](const FrameHead& frame) {
        absl::StrAppend(&events, "end ", Text(frame), "\n");
      });
  return events;
}

const std::string& Frames() {
  static const std::string& frames = *new std::string(absl::StrCat(
      Frame(kHeadersFrame, kEndHeaders, 0x01020305, std::string(70'000, 'x')),
      Frame(kSettingsFrame, 0, 0, "")));
  return frames;
}
constexpr char kEvents[] =
    "begin type 1 flags 4 stream 16909061 length 70000\n"
    "end type 1 flags 4 stream 16909061 length 70000\n"
    "begin type 4 flags 0 stream 0 length 0\n"
    "end type 4 flags 0 stream 0 length 0\n";

TEST(FrameSplitter, FindsFrames) {
  FrameSplitter splitter(0);
  EXPECT_EQ(Events(splitter, Frames()), kEvents);
}

TEST(FrameSplitter, FindsFramesByteByByteAfterAPreface) {
  FrameSplitter splitter(3);
  std::string events;
  for (const char byte : absl::StrCat("PRI", Frames())) {
    events += Events(splitter, absl::string_view(&byte, 1));
  }
  EXPECT_EQ(events, kEvents);
}

TEST(FrameSplitter, FrameEndsAfterThePayload) {
  FrameSplitter splitter(0);
  const std::string frame = Frame(kDataFrame, kEndStream, 1, "12");
  EXPECT_EQ(Events(splitter, frame.substr(0, 10)),
            "begin type 0 flags 1 stream 1 length 2\n");
  EXPECT_EQ(Events(splitter, frame.substr(10)),
            "end type 0 flags 1 stream 1 length 2\n");
}

TEST(FrameSplitter, IgnoresTheReservedBit) {
  FrameSplitter splitter(0);
  EXPECT_THAT(Events(splitter, Frame(kDataFrame, 0, 0x80000001, "")),
              ::testing::HasSubstr("stream 1 "));
}

}  // namespace
}  // namespace dcp::server
