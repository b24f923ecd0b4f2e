// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/unique_bits.h"

#include <cstdint>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"

namespace dcp {
namespace {

using ::dcp::testing::WithoutRandomBytes;

void ExpectDifferentBits() {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(UniqueBits()).second);
}

TEST(UniqueBits, Differ) { ExpectDifferentBits(); }

TEST(UniqueBits, DifferWithoutTheKernelsRandomBytes) {
  WithoutRandomBytes(ExpectDifferentBits);
}

TEST(UniqueBits, MakeARandomUuid) {
  std::set<std::string> seen;
  const auto expect_uuids = [&] {
    for (int i = 0; i < 1000; ++i) {
      const std::string id = NewUuid();
      EXPECT_THAT(
          id, ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-"
                                      "[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
      EXPECT_TRUE(seen.insert(id).second) << id;
    }
  };
  expect_uuids();
  WithoutRandomBytes(expect_uuids);
}

}  // namespace
}  // namespace dcp
