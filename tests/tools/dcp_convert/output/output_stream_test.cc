// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/output_stream.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::tools {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// Much more than a pipe holds.
std::vector<uint8_t> ManyBytes() {
  std::vector<uint8_t> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  return bytes;
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void CloseReader() { Close(ends_[0]); }
  void CloseWriter() { Close(ends_[1]); }

 private:
  static void Close(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  int ends_[2] = {-1, -1};
};

TEST(OutputStream, WritesAllBytesInOrderToAPipe) {
  Pipe pipe;
  std::vector<uint8_t> got;
  std::thread reader([&] {
    uint8_t piece[1000];
    ssize_t count;
    while ((count = read(pipe.reader(), piece, sizeof(piece))) > 0) {
      got.insert(got.end(), piece, piece + count);
    }
  });
  {
    ASSERT_OK_AND_ASSIGN(ByteStream stream,
                         OpenOutputStream(pipe.writer(), {}));
    const std::vector<uint8_t> bytes = ManyBytes();
    EXPECT_OK(stream(bytes));
    EXPECT_OK(stream(ByteSpan(bytes).first(3)));
  }
  pipe.CloseWriter();
  reader.join();
  std::vector<uint8_t> want = ManyBytes();
  want.insert(want.end(), want.begin(), want.begin() + 3);
  EXPECT_TRUE(got == want);
}

TEST(OutputStream, WritesAllBytesToAFile) {
  const TempDir dir;
  const std::string path = dir.WriteFile("out", "");
  const int file = open(path.c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  ASSERT_OK_AND_ASSIGN(ByteStream stream, OpenOutputStream(file, {}));
  const std::vector<uint8_t> bytes = ManyBytes();
  EXPECT_OK(stream(bytes));
  close(file);
  EXPECT_TRUE(testing::ReadFile(path) ==
              std::string(bytes.begin(), bytes.end()));
}

TEST(OutputStream, ReportsAClosedPipe) {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.CloseReader();
  ASSERT_OK_AND_ASSIGN(ByteStream stream, OpenOutputStream(pipe.writer(), {}));
  EXPECT_THAT(stream(ManyBytes()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("gone away")));
}

TEST(OutputStream, StopsWhileNobodyReads) {
  Pipe pipe;
  std::stop_source stop;
  ASSERT_OK_AND_ASSIGN(ByteStream stream,
                       OpenOutputStream(pipe.writer(), stop.get_token()));
  absl::Status status;
  std::thread writer([&] { status = stream(ManyBytes()); });
  // The write has begun and can never end.
  uint8_t first;
  EXPECT_EQ(read(pipe.reader(), &first, 1), 1);
  stop.request_stop();
  writer.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
}

TEST(OutputStream, RefusesATerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  EXPECT_THAT(
      OpenOutputStream(terminal, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a terminal")));
  close(terminal);
  EXPECT_THAT(OpenOutputStream(-1, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace dcp::tools
