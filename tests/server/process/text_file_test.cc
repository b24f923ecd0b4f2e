// SPDX-License-Identifier: Apache-2.0

#include "server/process/text_file.h"

#include <sys/stat.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

TEST(TextFile, IsReadWhole) {
  const TempDir dir;
  const std::string text(kMaxTextFileBytes, 'x');
  EXPECT_THAT(ReadTextFile(dir.WriteFile("f", text)), IsOkAndHolds(text));
  EXPECT_THAT(ReadTextFile(dir.WriteFile("e", "")), IsOkAndHolds(""));
}

TEST(TextFile, ReturnsTheMode) {
  const TempDir dir;
  const std::string path = dir.WriteFile("f", "x");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  uint32_t mode = 0;
  EXPECT_OK(ReadTextFile(path, &mode));
  EXPECT_EQ(mode & 0777, 0640);
}

TEST(TextFile, NamesPathsThatAreNoTextFile) {
  const TempDir dir;
  const std::string fifo = dir.Join("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(ReadTextFile(fifo),
              StatusIs(kInvalid, HasSubstr("fifo: is not a file")));
  EXPECT_THAT(ReadTextFile(dir.path()),
              StatusIs(kInvalid, HasSubstr("is not a file")));
  EXPECT_THAT(ReadTextFile(dir.Join("none")),
              StatusIs(kInvalid, HasSubstr("none: No such file")));
  EXPECT_THAT(ReadTextFile(dir.WriteFile(
                  "large", std::string(kMaxTextFileBytes + 1, 'x'))),
              StatusIs(kInvalid, HasSubstr("exceeds 1 MiB")));
}

}  // namespace
}  // namespace dcp::server
