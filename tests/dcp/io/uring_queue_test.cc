// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/uring_queue.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dcp/base/limits.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::TempDir;

constexpr uint32_t kBytes = kMaxDirectAlignment;

class UringQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        file_, fs_->Create(dir_.Join("f"), 16 * kBytes, DirectMode::kOn));
  }
  void TearDown() override { EXPECT_OK(fs_->Close(file_)); }

  IoRequest MakeUringRequest(IoRequest::Op op, uint64_t offset,
                             uint8_t* data) const {
    return {.op = op,
            .file = file_.handle,
            .offset = offset,
            .data = data,
            .length = kBytes};
  }

  // Writes and reads from one place in memory, and compares.
  void RoundTrip(IoQueue& queue, uint8_t* data) {
    std::fill_n(data, kBytes, uint8_t{0x5a});
    IoRequest request = MakeUringRequest(IoRequest::Op::kWrite, kBytes, data);
    Perform(queue, request);
    EXPECT_EQ(request.result, kBytes);
    std::fill_n(data, kBytes, uint8_t{0});
    request = MakeUringRequest(IoRequest::Op::kRead, kBytes, data);
    Perform(queue, request);
    EXPECT_EQ(request.result, kBytes);
    EXPECT_EQ(std::count(data, data + kBytes, 0x5a), kBytes);
  }

  static void Perform(IoQueue& queue, IoRequest& request) {
    ASSERT_OK(queue.Submit(&request));
    EXPECT_EQ(queue.in_flight(), 1u);
    std::vector<IoRequest*> done;
    ASSERT_OK(queue.Reap(done));
    EXPECT_EQ(done, std::vector<IoRequest*>{&request});
    EXPECT_EQ(queue.in_flight(), 0u);
  }

  TempDir dir_;
  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem(QueueKind::kUring);
  File file_;
  BlockPool pool_{2};
};

TEST_F(UringQueueTest, MovesBytesInRegisteredMemory) {
  // The second piece of memory begins and ends inside a page of 64 KiB.
  for (const uint64_t begin : {0, 4096}) {
    // So little that every user may lock it.
    ASSERT_OK_AND_ASSIGN(
        const auto queue,
        NewUringQueue(4, pool_.memory().subspan(begin, 2 * uint64_t{kBytes})));
    RoundTrip(*queue, pool_.memory().data() + kBytes);
  }
}

TEST_F(UringQueueTest, MovesBytesOutsideRegisteredMemory) {
  ASSERT_OK_AND_ASSIGN(
      const auto queue,
      NewUringQueue(4, pool_.memory().first(kBytes - kDirectAlignment)));
  RoundTrip(*queue, pool_.memory().data() + kBytes);
  // A buffer that is partly outside counts as outside.
  RoundTrip(*queue, pool_.memory().data());
}

TEST_F(UringQueueTest, MovesBytesWithoutRegistration) {
  ASSERT_OK_AND_ASSIGN(const auto queue, NewUringQueue(4, {}));
  RoundTrip(*queue, pool_.memory().data());
}

TEST_F(UringQueueTest, WorksIfMemoryMayNotBeLocked) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  // This is enough for the ring itself, which has whole pages, and for memory
  // of earlier rings, which the kernel unlocks later.
  const rlimit little = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &little), 0);
  const auto queue = NewUringQueue(4, pool_.memory());
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_OK(queue);
  RoundTrip(**queue, pool_.memory().data());
}

TEST_F(UringQueueTest, AcceptsAsManyRequestsAsItsDepth) {
  constexpr uint32_t kDepth = 5;  // not a power of two
  ASSERT_OK_AND_ASSIGN(const auto queue, NewUringQueue(kDepth, pool_.memory()));
  EXPECT_EQ(queue->depth(), kDepth);
  std::vector<IoRequest> requests;
  for (uint32_t i = 0; i < kDepth; ++i) {
    uint8_t* data = pool_.memory().data() + i * kBytes;
    std::fill_n(data, kBytes, static_cast<uint8_t>(i));
    requests.push_back(
        MakeUringRequest(IoRequest::Op::kWrite, i * kBytes, data));
  }
  std::vector<IoRequest*> done;
  for (IoRequest& request : requests) ASSERT_OK(queue->Submit(&request));
  while (queue->in_flight() > 0) ASSERT_OK(queue->Reap(done));
  EXPECT_EQ(done.size(), kDepth);
  for (const IoRequest& request : requests) EXPECT_EQ(request.result, kBytes);
}

TEST_F(UringQueueTest, ReturnsTheErrno) {
  ASSERT_OK_AND_ASSIGN(const auto queue, NewUringQueue(1, pool_.memory()));
  IoRequest request =
      MakeUringRequest(IoRequest::Op::kRead, 0, pool_.memory().data());
  request.file = -1;
  Perform(*queue, request);
  EXPECT_EQ(request.result, -EBADF);
}

TEST_F(UringQueueTest, DestructorWaitsForRequestsInFlight) {
  ASSERT_OK_AND_ASSIGN(auto queue, NewUringQueue(1, pool_.memory()));
  std::fill_n(pool_.memory().data(), kBytes, uint8_t{7});
  IoRequest request =
      MakeUringRequest(IoRequest::Op::kWrite, 0, pool_.memory().data());
  ASSERT_OK(queue->Submit(&request));
  queue.reset();
  std::string got(kBytes, '\0');
  ASSERT_OK(fs_->Read(
      file_, 0,
      MutableByteSpan(reinterpret_cast<uint8_t*>(got.data()), got.size())));
  EXPECT_EQ(got, std::string(kBytes, '\7'));
}

}  // namespace
}  // namespace dcp
