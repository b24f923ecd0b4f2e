// SPDX-License-Identifier: Apache-2.0

#include "server/transport/frame_guard.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/transport/raw_connection.h"

namespace dcp::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kNow = absl::Seconds(1000);

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() { EXPECT_TRUE(guard_.Receive(Preface(), kNow)); }

  bool Pass(const std::string& bytes) { return guard_.Receive(bytes, kNow); }

  // How many frames pass before the first that does not; at most `most`.
  int NumThatPass(const std::string& frame, int most) {
    int number = 0;
    while (number < most && Pass(frame)) ++number;
    return number;
  }

  // The headers of the client's next call.
  std::string Headers(uint8_t flags) {
    stream_ += 2;
    return Frame(kHeadersFrame, flags, stream_, std::string(300, 'x'));
  }

  // The server sends `bytes`, or only the first `length` if the socket takes no
  // more.
  void Send(const std::string& bytes, size_t length = std::string::npos) {
    std::string sent = bytes;
    iovec parts[] = {
        {sent.data(), sent.size() / 2},
        {sent.data() + sent.size() / 2, sent.size() - sent.size() / 2}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    guard_.Send(message, [&] {
      return static_cast<ssize_t>(std::min(length, sent.size()));
    });
  }

  CallLoad load_;
  FrameGuard guard_{load_};
  uint32_t stream_ = 0xFFFFFFFF;  // stream of the last call; the next one is 1
};

TEST_F(FrameGuardTest, AnsweredCallsPass) {
  load_.max_open_per_connection = 1;
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(Pass(Headers(kEndHeaders)));
    ASSERT_TRUE(
        Pass(Frame(kDataFrame, kEndStream, stream_, std::string(5000, 'x'))));
    EXPECT_EQ(load_.num_open, 1);
    Send(Frame(kHeadersFrame, kEndHeaders, stream_, "x"));
    Send(Frame(kHeadersFrame, kEndHeaders | kEndStream, stream_, "x"));
  }
  EXPECT_EQ(guard_.complaint(), "");
  EXPECT_EQ(load_.num_open, 0);
  EXPECT_EQ(load_.request_bytes, 0);
}

TEST_F(FrameGuardTest, RequestsCountUntilCompleteAndAnswered) {
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  EXPECT_EQ(load_.request_bytes, kCallBytes + 300);
  EXPECT_TRUE(Pass(Frame(kDataFrame, 0, stream_, std::string(5000, 'x'))));
  const int64_t bytes = kCallBytes + 300 + kReadPieceBytes + 5000;
  EXPECT_EQ(load_.request_bytes, bytes);
  EXPECT_EQ(guard_.request_bytes(), bytes);
  Send(Frame(kHeadersFrame, kEndHeaders, stream_, "x"));
  EXPECT_EQ(load_.request_bytes, bytes) << "answered";
  EXPECT_TRUE(Pass(Frame(kDataFrame, kEndStream, stream_, "")));
  EXPECT_EQ(load_.request_bytes, 0) << "answered and complete";
  EXPECT_EQ(load_.num_open, 1) << "the answer has not ended";
  EXPECT_TRUE(Pass(Headers(kEndHeaders | kEndStream)));
  EXPECT_EQ(load_.request_bytes, kCallBytes + 300) << "complete";
  EXPECT_EQ(load_.num_open, 2);
}

TEST_F(FrameGuardTest, ResetCallsTakeNothing) {
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  EXPECT_TRUE(Pass(Frame(kResetFrame, 0, stream_, "1234")));
  EXPECT_EQ(load_.num_open, 0);
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  Send(Frame(kResetFrame, 0, stream_, "1234"));
  EXPECT_EQ(load_.num_open, 0);
  EXPECT_EQ(load_.request_bytes, 0);
}

TEST_F(FrameGuardTest, OnlySentBytesAnswerACall) {
  EXPECT_TRUE(Pass(Headers(kEndHeaders | kEndStream)));
  const std::string answer =
      Frame(kHeadersFrame, kEndHeaders | kEndStream, stream_, "answer");
  Send(answer, 8);
  EXPECT_EQ(load_.num_open, 1);
  Send(answer.substr(8));
  EXPECT_EQ(load_.num_open, 0);
}

TEST_F(FrameGuardTest, LimitsCallsPerConnection) {
  load_.max_open_per_connection = 3;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  EXPECT_FALSE(Pass(Headers(kEndHeaders)));
  EXPECT_THAT(guard_.complaint(), HasSubstr("more than 3 calls at once"));
}

TEST_F(FrameGuardTest, IncompleteRequestsBecomeLate) {
  const absl::Duration late = kNow + kMaxRequestTime + absl::Milliseconds(1);
  // Headers that end the stream are not complete without END_HEADERS.
  for (const uint8_t flags : {kEndHeaders, kEndStream}) {
    EXPECT_TRUE(Pass(Headers(flags)));
    EXPECT_FALSE(guard_.IsLate(kNow + kMaxRequestTime));
    EXPECT_TRUE(guard_.IsLate(late));
    EXPECT_TRUE(Pass(Frame(kResetFrame, 0, stream_, "1234")));
    EXPECT_FALSE(guard_.IsLate(late));
  }
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  const std::string data = Frame(kDataFrame, kEndStream, stream_, "12");
  EXPECT_TRUE(Pass(data.substr(0, data.size() - 1)));
  EXPECT_TRUE(guard_.IsLate(late)) << "the last byte is missing";
  EXPECT_TRUE(Pass(data.substr(data.size() - 1)));
  EXPECT_FALSE(guard_.IsLate(late));
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  Send(Frame(kHeadersFrame, kEndHeaders, stream_, "x"));
  EXPECT_FALSE(guard_.IsLate(late)) << "a conversation";
}

TEST_F(FrameGuardTest, CutConnectionsTakeNothing) {
  EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  guard_.AddPublicCall(1);
  EXPECT_EQ(load_.request_bytes, 2 * kCallBytes + 300);
  EXPECT_TRUE(guard_.Cut("it is the largest"));
  EXPECT_FALSE(guard_.Cut("it is late"));
  EXPECT_EQ(guard_.complaint(), "it is the largest");
  guard_.AddPublicCall(-1);
  EXPECT_EQ(load_.request_bytes, 0);
  EXPECT_EQ(load_.num_open, 0);
  EXPECT_FALSE(Pass(Headers(kEndHeaders)));
}

TEST_F(FrameGuardTest, EndedConnectionsTakeNothing) {
  {
    FrameGuard guard(load_);
    EXPECT_TRUE(guard.Receive(Preface() + Headers(kEndHeaders), kNow));
    EXPECT_EQ(load_.num_open, 1);
  }
  EXPECT_EQ(load_.num_open, 0);
  EXPECT_EQ(load_.request_bytes, 0);
}

TEST_F(FrameGuardTest, AcceptsFramesByteByByte) {
  const std::string reset = Frame(kResetFrame, 0, 1, "1234");
  for (int i = 0; i < static_cast<int>(kMaxResets.burst); ++i) {
    for (char c : reset) {
      ASSERT_TRUE(guard_.Receive(absl::string_view(&c, 1), kNow));
    }
  }
  EXPECT_FALSE(Pass(reset));
}

TEST_F(FrameGuardTest, CutsEndlessHeaders) {
  EXPECT_TRUE(Pass(Frame(kHeadersFrame, 0, 1, std::string(16 << 10, 'x'))));
  const std::string more =
      Frame(kContinuationFrame, 0, 1, std::string(16 << 10, 'x'));
  EXPECT_EQ(NumThatPass(more, 100), 3);
  EXPECT_THAT(guard_.complaint(), HasSubstr("81920 bytes exceed 65536"));
  EXPECT_FALSE(Pass("x")) << "it stays cut";
}

TEST_F(FrameGuardTest, CutsEmptyContinuations) {
  EXPECT_TRUE(Pass(Frame(kHeadersFrame, 0, 1, "")));
  EXPECT_EQ(NumThatPass(Frame(kContinuationFrame, 0, 1, ""), 100), 31);
  EXPECT_THAT(guard_.complaint(), HasSubstr("33 frames exceed 32"));
}

TEST_F(FrameGuardTest, CutsALargeFrameBeforeThePayload) {
  const std::string frame =
      Frame(kHeadersFrame, kEndHeaders, 1, std::string(100'000, 'x'));
  EXPECT_FALSE(Pass(frame.substr(0, 9)));
}

TEST_F(FrameGuardTest, LimitsTheRateOfResets) {
  const std::string reset = Frame(kResetFrame, 0, 1, "1234");
  const int burst = static_cast<int>(kMaxResets.burst);
  EXPECT_EQ(NumThatPass(reset, burst), burst);
  EXPECT_TRUE(guard_.Receive(reset, kNow + absl::Seconds(1)));
  const int per_second = static_cast<int>(kMaxResets.per_second);
  EXPECT_EQ(NumThatPass(reset, burst), per_second - 1);
  EXPECT_THAT(guard_.complaint(), HasSubstr("calls were reset"));
}

TEST_F(FrameGuardTest, LimitsNewCallsUnderLoad) {
  const int burst = static_cast<int>(kMaxCallsUnderLoad.burst);
  load_.max_calls = 1000;
  load_.num_calls = 1000;
  for (int i = 0; i < 10 * burst; ++i) EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  load_.num_calls = 1001;
  EXPECT_FALSE(Pass(Headers(kEndHeaders)));
  EXPECT_THAT(guard_.complaint(), HasSubstr("holds more than 1000 calls"));
  FrameGuard other(load_);
  EXPECT_TRUE(other.Receive(Preface(), kNow));
  for (int i = 0; i < burst; ++i) {
    EXPECT_TRUE(other.Receive(Headers(kEndHeaders), kNow));
  }
  EXPECT_FALSE(other.Receive(Headers(kEndHeaders), kNow));
}

TEST_F(FrameGuardTest, LetsAClientWithATokenBeginCallsUnderLoad) {
  load_.max_calls = 1000;
  load_.num_calls = 1001;
  const int more = 2 * static_cast<int>(kMaxCallsUnderLoad.burst);
  guard_.AddClientCall(1);
  for (int i = 0; i < more; ++i) EXPECT_TRUE(Pass(Headers(kEndHeaders)));
  guard_.AddClientCall(-1);
  EXPECT_FALSE(Pass(Headers(kEndHeaders)));
}

TEST_F(FrameGuardTest, LimitsControlFrames) {
  for (const std::string& frame :
       {Frame(kSettingsFrame, 0, 0, ""), Frame(kPingFrame, 0, 0, "12345678"),
        Frame(kDataFrame, 0, 1, "")}) {
    FrameGuard guard(load_);
    ASSERT_TRUE(guard.Receive(Preface(), kNow));
    int passed = 1;  // the preface has one
    while (passed < 2000 && guard.Receive(frame, kNow)) ++passed;
    EXPECT_EQ(passed, kMaxControlFrames.burst);
  }
}

TEST_F(FrameGuardTest, AcknowledgementsAndWindowUpdatesAreFree) {
  constexpr uint8_t kAck = 1;
  EXPECT_EQ(NumThatPass(Frame(kPingFrame, kAck, 0, "12345678"), 5000), 5000);
  EXPECT_EQ(NumThatPass(Frame(kSettingsFrame, kAck, 0, ""), 5000), 5000);
  constexpr auto kWindowUpdateFrame = static_cast<FrameType>(8);
  EXPECT_EQ(NumThatPass(Frame(kWindowUpdateFrame, 0, 1, "1234"), 5000), 5000);
}

}  // namespace
}  // namespace dcp::server
