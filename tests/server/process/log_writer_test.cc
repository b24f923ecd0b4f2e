// SPDX-License-Identifier: Apache-2.0

#include "server/process/log_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::ReadFile;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::WithoutNewThreads;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(LogWriter, WritesLinesInOrder) {
  const TempDir dir;
  const std::string path = dir.WriteFile("log", "");
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  {
    LogWriter writer(fd);
    ASSERT_OK(writer.Start());
    for (int i = 0; i < 3; ++i) writer.Write(absl::StrCat("line ", i, "\n"));
    writer.Flush(absl::InfiniteDuration());
    EXPECT_EQ(ReadFile(path), "line 0\nline 1\nline 2\n");
  }
  close(fd);
}

TEST(LogWriter, FullPipeBlocksNobody) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  std::string got;
  {
    LogWriter writer(pipe_fds[1]);
    ASSERT_OK(writer.Start());
    const std::string line = std::string(999, 'x') + "\n";
    // The thread is running once this has been read.
    writer.Write("first\n");
    char first[6];
    ASSERT_EQ(read(pipe_fds[0], first, sizeof(first)), 6);
    // More than the pipe and the writer can hold.
    for (int i = 0; i < 5000; ++i) writer.Write(line);
    // The log is read now, and contains how many lines are missing.
    while (!absl::StrContains(got, " W event=log_lost lines=")) {
      char bytes[4096];
      const ssize_t length = read(pipe_fds[0], bytes, sizeof(bytes));
      ASSERT_GT(length, 0);
      got.append(bytes, static_cast<size_t>(length));
    }
    EXPECT_THAT(got, HasSubstr(line));
  }
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(LogWriter, AnErrorLosesOneLine) {
  const TempDir dir;
  const std::string path = dir.WriteFile("log", "");
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  // A disk that is full for a while.
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    LogWriter writer(fd);
    ASSERT_OK(writer.Start());
    writer.Write("one\n");
    writer.Write("two\n");
    writer.Flush(absl::InfiniteDuration());
    ASSERT_EQ(dup2(file, fd), fd);
    writer.Write("three\n");
    writer.Flush(absl::InfiniteDuration());
    EXPECT_THAT(ReadFile(path), AllOf(HasSubstr("event=log_lost lines=2\n"),
                                      EndsWith("three\n")));
  }
  close(fd);
  close(file);
}

TEST(LogWriter, EndsWithAFullPipe) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  {
    LogWriter writer(pipe_fds[1]);
    ASSERT_OK(writer.Start());
    for (int i = 0; i < 1000; ++i) writer.Write(std::string(1000, 'x'));
  }
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(LogWriter, FailsWithoutAThread) {
  WithoutNewThreads([] {
    LogWriter writer(STDERR_FILENO);
    EXPECT_THAT(writer.Start(), StatusIs(absl::StatusCode::kResourceExhausted));
    writer.Write("not written\n");
  });
}

}  // namespace
}  // namespace dcp::server
