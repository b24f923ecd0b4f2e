#include "server/transport/frame_guard.h"

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
  FrameGuardTest() { EXPECT_TRUE(guard_.Pass(Preface(), kNow)); }

  bool Pass(const std::string& bytes) { return guard_.Pass(bytes, kNow); }

  // How many frames pass before the first that does not; at most `most`.
  int NumThatPass(const std::string& frame, int most) {
    int number = 0;
    while (number < most && Pass(frame)) ++number;
    return number;
  }

  CallLoad load_;
  FrameGuard guard_{load_};
};

TEST_F(FrameGuardTest, CallsPass) {
  const std::string call =
      absl::StrCat(Frame(kHeadersFrame, kEndHeaders, 1, std::string(300, 'x')),
                   Frame(kDataFrame, kEndStream, 1, std::string(5000, 'x')));
  EXPECT_EQ(NumThatPass(call, 5000), 5000);
  EXPECT_EQ(guard_.complaint(), "");
}

TEST_F(FrameGuardTest, FramesMayArriveByteByByte) {
  const std::string reset = Frame(kResetFrame, 0, 1, "1234");
  for (int i = 0; i < static_cast<int>(kMaxResets.burst); ++i) {
    for (char c : reset) {
      ASSERT_TRUE(guard_.Pass(absl::string_view(&c, 1), kNow));
    }
  }
  EXPECT_FALSE(Pass(reset));
}

TEST_F(FrameGuardTest, HeadersThatDoNotEndAreCut) {
  EXPECT_TRUE(Pass(Frame(kHeadersFrame, 0, 1, std::string(16 << 10, 'x'))));
  const std::string more =
      Frame(kContinuationFrame, 0, 1, std::string(16 << 10, 'x'));
  EXPECT_EQ(NumThatPass(more, 100), 3);
  EXPECT_THAT(guard_.complaint(), HasSubstr("81920 bytes exceed 65536"));
  EXPECT_FALSE(Pass("x")) << "it stays cut";
}

TEST_F(FrameGuardTest, EmptyContinuationsAreCut) {
  EXPECT_TRUE(Pass(Frame(kHeadersFrame, 0, 1, "")));
  EXPECT_EQ(NumThatPass(Frame(kContinuationFrame, 0, 1, ""), 100), 31);
  EXPECT_THAT(guard_.complaint(), HasSubstr("33 frames exceed 32"));
}

TEST_F(FrameGuardTest, ALargeFrameIsCutBeforeItsPayload) {
  const std::string frame =
      Frame(kHeadersFrame, kEndHeaders, 1, std::string(100'000, 'x'));
  EXPECT_FALSE(Pass(frame.substr(0, 9)));
}

TEST_F(FrameGuardTest, ResetsAreBoundedByTime) {
  const std::string reset = Frame(kResetFrame, 0, 1, "1234");
  const int burst = static_cast<int>(kMaxResets.burst);
  EXPECT_EQ(NumThatPass(reset, burst), burst);
  EXPECT_TRUE(guard_.Pass(reset, kNow + absl::Seconds(1)));
  const int per_second = static_cast<int>(kMaxResets.per_second);
  EXPECT_EQ(NumThatPass(reset, burst), per_second - 1);
  EXPECT_THAT(guard_.complaint(), HasSubstr("calls were reset"));
}

TEST_F(FrameGuardTest, CallsAreBoundedWhileTheServerHoldsTooMany) {
  const std::string call = Frame(kHeadersFrame, kEndHeaders, 1, "x");
  const int burst = static_cast<int>(kMaxCallsUnderLoad.burst);
  load_.max_calls = 1000;
  load_.num_calls = 1000;
  EXPECT_EQ(NumThatPass(call, 10 * burst), 10 * burst);
  load_.num_calls = 1001;
  EXPECT_FALSE(Pass(call));
  EXPECT_THAT(guard_.complaint(), HasSubstr("holds more than 1000 calls"));
  FrameGuard other(load_);
  EXPECT_TRUE(other.Pass(Preface(), kNow));
  for (int i = 0; i < burst; ++i) EXPECT_TRUE(other.Pass(call, kNow));
  EXPECT_FALSE(other.Pass(call, kNow));
}

TEST_F(FrameGuardTest, ControlFramesAreBounded) {
  for (const std::string& frame :
       {Frame(kSettingsFrame, 0, 0, ""), Frame(kPingFrame, 0, 0, "12345678"),
        Frame(kDataFrame, 0, 1, "")}) {
    FrameGuard guard(load_);
    ASSERT_TRUE(guard.Pass(Preface(), kNow));
    int passed = 1;  // the preface has one
    while (passed < 2000 && guard.Pass(frame, kNow)) ++passed;
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
