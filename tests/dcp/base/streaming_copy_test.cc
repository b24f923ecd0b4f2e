// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/streaming_copy.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace dcp {
namespace {

// Every length around the limits, from and to every alignment that matters;
// only `dst` changes.
TEST(StreamingCopy, CopiesAsMemcpyDoes) {
  constexpr size_t kMargin = 128;
  std::vector<uint8_t> src(20'000);
  for (size_t i = 0; i < src.size(); ++i) {
    src[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  for (const size_t size :
       {0, 1, 63, 4095, 4096, 4097, 4159, 4160, 8191, 10'007}) {
    for (const size_t to : {0, 1, 8, 63, 64, 65}) {
      for (const size_t from : {0, 1, 16, 61}) {
        std::vector<uint8_t> dst(kMargin + to + size + kMargin, 0xee);
        std::vector<uint8_t> expected = dst;
        for (size_t i = 0; i < size; ++i) {
          expected[kMargin + to + i] = src[from + i];
        }
        StreamingCopy(dst.data() + kMargin + to, src.data() + from, size);
        ASSERT_TRUE(dst == expected)
            << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace dcp
