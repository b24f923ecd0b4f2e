// SPDX-License-Identifier: Apache-2.0

#include "server/transport/compression.h"

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

// The size that gRPC allocates.
constexpr uInt kBlockBytes = 1024;
// For gzip, with gRPC's value.
constexpr int kGzipWindowBits = 15 | 16;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, kGzipWindowBits, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in =
      const_cast<Bytef*>(reinterpret_cast<const Bytef*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Unpacks like gRPC's message_compress.cc: a message comes in several slices,
// and the loop ends at a block that is not full. Empty after an error.
std::string Gunzip(const std::string& packed, size_t slice_bytes) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, kGzipWindowBits), Z_OK);
  const absl::Cleanup end = [&] { inflateEnd(&stream); };
  std::string text;
  std::vector<char> block(kBlockBytes);
  stream.next_out = reinterpret_cast<Bytef*>(block.data());
  stream.avail_out = kBlockBytes;
  const auto take = [&] {
    text.append(block.data(), kBlockBytes - stream.avail_out);
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = kBlockBytes;
  };
  int code = Z_STREAM_END;
  for (size_t begin = 0; begin < packed.size(); begin += slice_bytes) {
    std::string slice = packed.substr(begin, slice_bytes);
    stream.next_in = reinterpret_cast<Bytef*>(slice.data());
    stream.avail_in = static_cast<uInt>(slice.size());
    const bool is_last = begin + slice_bytes >= packed.size();
    do {
      if (stream.avail_out == 0) take();
      code = inflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH);
      if (code < 0 && code != Z_BUF_ERROR) return "";
    } while (stream.avail_out == 0);
    if (stream.avail_in != 0) return "";
  }
  if (code != Z_STREAM_END) return "";
  take();
  return text;
}

class CompressionTest : public ::testing::Test {
 protected:
  ~CompressionTest() override { BoundDecompression(UINT64_MAX); }
};

TEST_F(CompressionTest, UnpacksMessagesWithinTheLimit) {
  for (const size_t size : {1, 1023, 1024, 1025, 100'000, 1 << 20}) {
    const std::string text(size, 'x');
    BoundDecompression(size);
    EXPECT_EQ(Gunzip(Gzip(text), 100), text) << size;
    EXPECT_EQ(Gunzip(Gzip(text), 1 << 20), text) << size;
  }
}

// 64 MiB in 64 KiB.
TEST_F(CompressionTest, CutsABombAfterTheLimit) {
  const std::string bomb = Gzip(std::string(64 << 20, '\0'));
  ASSERT_LT(bomb.size(), 1 << 17);
  constexpr uint64_t kBound = 1 << 20;
  BoundDecompression(kBound);
  for (const size_t slice_bytes : {size_t{100}, size_t{8192}, bomb.size()}) {
    const std::string text = Gunzip(bomb, slice_bytes);
    // Enough for gRPC to see that it is too large, and no more.
    EXPECT_GT(text.size(), kBound);
    EXPECT_LE(text.size(), kBound + 2 * kBlockBytes);
  }
}

}  // namespace
}  // namespace dcp::server
