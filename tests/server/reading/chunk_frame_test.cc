// SPDX-License-Identifier: Apache-2.0

#include "server/reading/chunk_frame.h"

#include <memory>
#include <string>
#include <vector>

#include "dcp/base/checksum.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {
namespace {

std::string BufferText(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

TEST(ChunkFrame, ProtobufReadsIt) {
  for (const uint32_t part : {0u, 1u, 127u, 128u, 0xFFFFFFFFu}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{300}, UINT64_MAX}) {
      for (const size_t size : {1, 127, 128, 20'000, 300'000}) {
        const std::string data(size, 'x');
        const uint32_t crc = ExtendCrc32c(0, AsBytes(data));
        const grpc::ByteBuffer buffer = ChunkFrameBuffer({.part = part,
                                                          .offset = offset,
                                                          .data = AsBytes(data),
                                                          .crc32c = crc},
                                                         nullptr);
        tessera::v1::ReadTensorsResponse response;
        ASSERT_TRUE(response.ParseFromString(BufferText(buffer)));
        ASSERT_TRUE(response.has_chunk());
        EXPECT_EQ(response.chunk().part(), part);
        EXPECT_EQ(response.chunk().offset(), offset);
        EXPECT_EQ(response.chunk().crc32c(), crc);
        EXPECT_TRUE(response.chunk().data() == data);
        EXPECT_EQ(response.ByteSizeLong(), buffer.Length());
      }
    }
  }
}

TEST(ChunkFrame, HoldsTheOwnerUntilTheMessageEnds) {
  auto owner = std::make_shared<std::string>("payload");
  const std::weak_ptr<std::string> weak = owner;
  const ByteSpan data = AsBytes(*owner);
  grpc::ByteBuffer buffer = ChunkFrameBuffer({.data = data}, std::move(owner));
  grpc::ByteBuffer copy = buffer;
  buffer.Clear();
  EXPECT_FALSE(weak.expired());
  copy.Clear();
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace dcp::server
