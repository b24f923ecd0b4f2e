// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/blocking_queue.h"

#include <cerrno>
#include <string>
#include <vector>

#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::TempDir;

IoRequest MakeBlockingRequest(IoRequest::Op op, FileHandle file,
                              uint64_t offset, std::string& data) {
  return {.op = op,
          .file = file,
          .offset = offset,
          .data = reinterpret_cast<uint8_t*>(data.data()),
          .length = static_cast<uint32_t>(data.size())};
}

TEST(BlockingQueue, CarriesRequestsOutInOrder) {
  TempDir dir;
  const auto fs = NewPosixFileSystem();
  ASSERT_OK_AND_ASSIGN(const File file,
                       fs->Create(dir.Join("f"), 0, DirectMode::kOff));
  std::string text = "hello";
  std::string got(8, '.');
  IoRequest write =
      MakeBlockingRequest(IoRequest::Op::kWrite, file.handle, 10, text);
  IoRequest read =
      MakeBlockingRequest(IoRequest::Op::kRead, file.handle, 12, got);
  BlockingQueue queue(2);
  ASSERT_OK(queue.Submit(&write));
  ASSERT_OK(queue.Submit(&read));
  EXPECT_EQ(queue.in_flight(), 2u);
  std::vector<IoRequest*> done;
  ASSERT_OK(queue.Reap(done));
  ASSERT_OK(queue.Reap(done));
  EXPECT_EQ(done, (std::vector<IoRequest*>{&write, &read}));
  EXPECT_EQ(write.result, 5);
  EXPECT_EQ(read.result, 3);  // up to the end of the file
  EXPECT_EQ(got, "llo.....");
  EXPECT_OK(fs->Close(file));
}

TEST(BlockingQueue, ReturnsTheErrno) {
  std::string data(1, '\0');
  IoRequest request = MakeBlockingRequest(IoRequest::Op::kRead, -1, 0, data);
  BlockingQueue queue(1);
  ASSERT_OK(queue.Submit(&request));
  std::vector<IoRequest*> done;
  ASSERT_OK(queue.Reap(done));
  EXPECT_EQ(request.result, -EBADF);
}

TEST(BlockingQueue, ReapReturnsAtOnceWhenNothingIsInFlight) {
  BlockingQueue queue(1);
  std::vector<IoRequest*> done;
  EXPECT_OK(queue.Reap(done));
  EXPECT_TRUE(done.empty());
}

}  // namespace
}  // namespace dcp
