// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/paced_queue.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/io/blocking_queue.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::TempDir;

class PacedQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(file_,
                         fs_->Create(dir_.Join("f"), 0, DirectMode::kOff));
  }
  void TearDown() override { EXPECT_OK(fs_->Close(file_)); }

  void Move(IoQueue& queue, IoRequest::Op op) {
    IoRequest request{.op = op,
                      .file = file_.handle,
                      .data = reinterpret_cast<uint8_t*>(data_.data()),
                      .length = static_cast<uint32_t>(data_.size())};
    ASSERT_OK(queue.Submit(&request));
    std::vector<IoRequest*> done;
    ASSERT_OK(queue.Reap(done));
    EXPECT_EQ(done, std::vector<IoRequest*>{&request});
    EXPECT_EQ(request.result, static_cast<int64_t>(data_.size()));
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  File file_;
  std::string data_ = std::string(1000, 'x');
  BlockingQueue blocking_{1};
};

TEST_F(PacedQueueTest, WritesWaitAfterTheFirst) {
  PacedQueue queue(blocking_, /*max_rate=*/20'000);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 3; ++i) Move(queue, IoRequest::Op::kWrite);
  // Two writes have waited for a thousand bytes each.
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(100));
}

TEST_F(PacedQueueTest, ReadsAndUnlimitedWritesDoNotWait) {
  PacedQueue queue(blocking_, /*max_rate=*/1);
  Move(queue, IoRequest::Op::kWrite);
  for (int i = 0; i < 3; ++i) Move(queue, IoRequest::Op::kRead);
  PacedQueue unlimited(blocking_, /*max_rate=*/0);
  for (int i = 0; i < 3; ++i) Move(unlimited, IoRequest::Op::kWrite);
}

TEST_F(PacedQueueTest, CancelEndsAWait) {
  PacedQueue queue(blocking_, /*max_rate=*/1);
  Move(queue, IoRequest::Op::kWrite);
  std::thread canceller([&] { queue.Cancel(); });
  Move(queue, IoRequest::Op::kWrite);  // would wait for 1,000 seconds
  canceller.join();
}

}  // namespace
}  // namespace dcp
