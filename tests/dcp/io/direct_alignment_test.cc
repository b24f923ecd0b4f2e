// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/direct_alignment.h"

#include <sys/stat.h>

#include <bit>
#include <cstdint>

#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

constexpr uint64_t kPages[] = {4096, 16384, 65536};

struct statx Answer(uint32_t offset_align, uint32_t mem_align) {
  struct statx info = {};
  info.stx_mask = STATX_BASIC_STATS | STATX_DIOALIGN;
  info.stx_dio_offset_align = offset_align;
  info.stx_dio_mem_align = mem_align;
  return info;
}

TEST(DirectAlignment, IsThatOfTheFileSystemWhateverThePages) {
  for (const uint64_t page : kPages) {
    EXPECT_EQ(DirectAlignmentFrom(Answer(512, 4), page), 4096u);
    EXPECT_EQ(DirectAlignmentFrom(Answer(4096, 512), page), 4096u);
    EXPECT_EQ(DirectAlignmentFrom(Answer(32768, 512), page), 32768u);
    EXPECT_EQ(DirectAlignmentFrom(Answer(65536, 65536), page), 65536u);
    EXPECT_EQ(DirectAlignmentFrom(Answer(4096, 65536), page), 65536u);
  }
}

TEST(DirectAlignment, IsAPageWhereTheFileSystemSaysNothing) {
  struct statx info = {};
  info.stx_mask = STATX_BASIC_STATS;
  info.stx_dio_offset_align = 512;  // not in the mask
  for (const uint64_t page : kPages) {
    EXPECT_EQ(DirectAlignmentFrom(info, page), page);
  }
}

TEST(DirectAlignment, IsNeverBeyondItsLimits) {
  EXPECT_EQ(kMaxDirectAlignment % PageBytes(), 0u);
  EXPECT_EQ(DirectAlignmentFrom(Answer(1 << 20, 4096), 4096), 65536u);
  EXPECT_EQ(DirectAlignmentFrom(Answer(12288, 512), 4096), 16384u);
  // The file has no direct transfers.
  EXPECT_EQ(DirectAlignmentFrom(Answer(0, 0), 65536), 4096u);
}

TEST(DirectAlignment, OfAFileIsAPowerOfTwoInTheLimits) {
  const testing::TempDir dir;
  const auto fs = NewPosixFileSystem();
  ASSERT_OK_AND_ASSIGN(const File file,
                       fs->Create(dir.Join("f"), 0, DirectMode::kOff));
  for (const int fd : {file.handle, -1}) {
    const uint64_t alignment = DirectAlignment(fd);
    EXPECT_TRUE(std::has_single_bit(alignment)) << alignment;
    EXPECT_GE(alignment, kDirectAlignment);
    EXPECT_LE(alignment, kMaxDirectAlignment);
  }
  EXPECT_OK(fs->Close(file));
}

}  // namespace
}  // namespace dcp
