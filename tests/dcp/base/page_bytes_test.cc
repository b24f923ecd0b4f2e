// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/page_bytes.h"

#include <sys/mman.h>

#include <cstdint>
#include <fstream>

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(PageBytes, IsTheUnitOfTheSystem) {
  const uint64_t page = PageBytes();
  auto* const memory = static_cast<uint8_t*>(
      mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  unsigned char resident[2];
  EXPECT_NE(mincore(memory + page / 2, 1, resident), 0);
  EXPECT_EQ(mincore(memory + page, 1, resident), 0);
  munmap(memory, 2 * page);
}

TEST(PageBytes, HugePagesGrowWithTheSquare) {
  EXPECT_EQ(HugePageBytes(4 << 10), 2u << 20);
  EXPECT_EQ(HugePageBytes(16 << 10), 32u << 20);
  EXPECT_EQ(HugePageBytes(64 << 10), 512u << 20);
}

TEST(PageBytes, HugePagesAreThoseOfTheKernel) {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  uint64_t bytes = 0;
  // A kernel without huge pages has no such file.
  if (file >> bytes) EXPECT_EQ(HugePageBytes(PageBytes()), bytes);
}

}  // namespace
}  // namespace dcp
