// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/file_systems/routed_file_system.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/io/io_queue.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kInvalidArgument;
using ::absl::StatusCode::kNotFound;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class RoutedFiles : public ::testing::Test {
 protected:
  RoutedFiles()
      : fs_(NewRoutedFileSystem(std::make_unique<SimStorage>(),
                                server_.Opener())) {}

  SimObjectServer server_;
  std::unique_ptr<FileSystem> fs_;
};

TEST_F(RoutedFiles, NamesDecideWhereAFileIs) {
  ASSERT_OK(WriteFile(*fs_, "/f", "local"));
  ASSERT_OK(WriteFile(*fs_, "s3://bucket/f", "object"));
  EXPECT_EQ(ReadFile(*fs_, "/f", 100, false).value(), "local");
  EXPECT_EQ(ReadFile(*fs_, "s3://bucket/f", 100, false).value(), "object");
  EXPECT_EQ(server_.BytesOf("f"), "object");
  EXPECT_TRUE(fs_->TraitsAt("/f").has_rename);
  EXPECT_FALSE(fs_->TraitsAt("s3://bucket/f").has_rename);
  EXPECT_THAT(fs_->Rename("/f", "s3://bucket/g"),
              StatusIs(kInvalidArgument, HasSubstr("different")));
  EXPECT_OK(fs_->Remove("s3://bucket/f"));
  EXPECT_OK(fs_->Stat("/f").status());
  EXPECT_THAT(fs_->Stat("s3://bucket/f").status(), StatusIs(kNotFound));
}

TEST_F(RoutedFiles, OneQueueServesBoth) {
  ASSERT_OK(WriteFile(*fs_, "/f", "0123456789"));
  ASSERT_OK(WriteFile(*fs_, "s3://bucket/f", "abcdefghij"));
  std::vector<File> files;
  for (const char* path : {"/f", "s3://bucket/f"}) {
    const absl::StatusOr<File> file =
        fs_->OpenForRead(path, DirectMode::kOff, false);
    ASSERT_OK(file.status());
    files.push_back(*file);
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> queue = fs_->NewQueue(32, {});
  ASSERT_OK(queue.status());
  std::string bytes(20, '-');
  std::vector<IoRequest> requests(20);
  for (uint32_t i = 0; i < 20; ++i) {
    requests[i].file = files[i % 2].handle;
    requests[i].offset = i / 2;
    requests[i].data = reinterpret_cast<uint8_t*>(bytes.data()) + i;
    requests[i].length = 1;
    ASSERT_OK((*queue)->Submit(&requests[i]));
  }
  EXPECT_EQ((*queue)->in_flight(), 20u);
  std::vector<IoRequest*> done;
  while ((*queue)->in_flight() > 0) {
    const size_t before = done.size();
    ASSERT_OK((*queue)->Reap(done));
    EXPECT_GT(done.size(), before);
  }
  EXPECT_EQ(done.size(), 20u);
  EXPECT_EQ(bytes, "0a1b2c3d4e5f6g7h8i9j");
  for (const File& file : files) EXPECT_OK(fs_->Close(file));
}

}  // namespace
}  // namespace dcp
