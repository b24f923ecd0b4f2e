// SPDX-License-Identifier: Apache-2.0

#include "client/received_chunk.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::client {
namespace {

using Response = ::tessera::v1::ReadTensorsResponse;

// `text` as gRPC may receive it, in slices of `slice_bytes`.
grpc::ByteBuffer BufferOf(const std::string& text, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < text.size(); begin += slice_bytes) {
    slices.emplace_back(text.data() + begin,
                        std::min(slice_bytes, text.size() - begin));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string TextOf(const ReceivedChunk& chunk) {
  std::string text;
  for (const ByteSpan piece : chunk.pieces) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return text;
}

std::string MessageOf(uint32_t part, uint64_t offset, const std::string& data) {
  Response response;
  Response::Chunk& chunk = *response.mutable_chunk();
  chunk.set_part(part);
  chunk.set_offset(offset);
  chunk.set_data(data);
  chunk.set_crc32c(0xfedcba98);
  return response.SerializeAsString();
}

TEST(ReceivedChunk, FindsTheFieldsWhereverSlicesEnd) {
  std::string data;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&data, i, ",");
  for (const std::string& sent : {std::string(), std::string("x"), data}) {
    for (const uint32_t part : {0u, 300u, 0xffffffffu}) {
      const std::string text = MessageOf(part, UINT64_MAX - part, sent);
      for (const size_t slice_bytes : {1, 2, 7, 100, 100'000}) {
        grpc::ByteBuffer message = BufferOf(text, slice_bytes);
        ChunkParser parser(message);
        ReceivedChunk chunk;
        ASSERT_TRUE(parser.Parse(chunk));
        EXPECT_EQ(chunk.part, part);
        EXPECT_EQ(chunk.offset, UINT64_MAX - part);
        EXPECT_EQ(chunk.crc32c, 0xfedcba98);
        EXPECT_EQ(chunk.num_bytes, sent.size());
        EXPECT_EQ(TextOf(chunk), sent);
      }
    }
  }
}

TEST(ReceivedChunk, LeavesOtherMessagesToProtobuf) {
  const std::string chunk = MessageOf(1, 2, "payload");
  Response header;
  header.mutable_header()->set_etag("e");
  std::vector<std::string> texts = {
      "", "nonsense", header.SerializeAsString(),
      // Later fields replace earlier ones, or are unknown.
      chunk + chunk, chunk + header.SerializeAsString(),
      chunk + std::string("\x78\x01", 2),
      std::string("\x12\x04\x1a\x00\x78\x01", 6),
      std::string("\x12\x06\x1a\x01"
                  "a\x1a\x01"
                  "b",
                  8)};
  for (size_t size = 1; size < chunk.size(); ++size) {
    texts.push_back(chunk.substr(0, size));
  }
  for (const std::string& text : texts) {
    grpc::ByteBuffer message = BufferOf(text, 3);
    ChunkParser parser(message);
    ReceivedChunk parsed;
    EXPECT_FALSE(parser.Parse(parsed)) << text;
  }
}

TEST(ReceivedChunk, ReadsParsedMessages) {
  Response response;
  ASSERT_TRUE(response.ParseFromString(MessageOf(3, 4, "payload")));
  const ReceivedChunk chunk = ReceivedChunk::FromChunk(response.chunk());
  EXPECT_EQ(chunk.part, 3u);
  EXPECT_EQ(chunk.offset, 4u);
  EXPECT_EQ(chunk.crc32c, 0xfedcba98);
  EXPECT_EQ(chunk.num_bytes, 7u);
  EXPECT_EQ(TextOf(chunk), "payload");
}

}  // namespace
}  // namespace dcp::client
