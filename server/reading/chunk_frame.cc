// SPDX-License-Identifier: Apache-2.0
// The wire format of the message:
//
//   0x12 length                   ReadTensorsResponse.chunk
//     0x08 part                   Chunk.part, if it is not 0
//     0x10 offset                 Chunk.offset, if it is not 0
//     0x25 crc32c, 4 bytes        Chunk.crc32c
//     0x1a length data            Chunk.data
#include "server/reading/chunk_frame.h"

#include <utility>

#include "grpcpp/support/slice.h"

namespace dcp::server {
namespace {

constexpr char kChunkTag = 0x12;
constexpr char kPartTag = 0x08;
constexpr char kOffsetTag = 0x10;
constexpr char kCrcTag = 0x25;
constexpr char kDataTag = 0x1a;

void AppendVarint(uint64_t value, std::string& text) {
  for (; value >= 0x80; value >>= 7) {
    text += static_cast<char>(0x80 | (value & 0x7f));
  }
  text += static_cast<char>(value);
}

}  // namespace

std::string ChunkFrameHead(const ChunkFrame& frame) {
  std::string chunk;
  if (frame.part != 0) {
    chunk += kPartTag;
    AppendVarint(frame.part, chunk);
  }
  if (frame.offset != 0) {
    chunk += kOffsetTag;
    AppendVarint(frame.offset, chunk);
  }
  chunk += kCrcTag;
  for (int shift = 0; shift < 32; shift += 8) {
    chunk += static_cast<char>(frame.crc32c >> shift);
  }
  chunk += kDataTag;
  AppendVarint(frame.data.size(), chunk);

  std::string head(1, kChunkTag);
  AppendVarint(chunk.size() + frame.data.size(), head);
  return head + chunk;
}

grpc::ByteBuffer ChunkFrameBuffer(const ChunkFrame& frame,
                                  std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  auto held = std::make_unique<Owner>(std::move(owner));
  // gRPC has no slices of constant bytes, but does not write to these.
  const grpc::Slice slices[] = {
      grpc::Slice(ChunkFrameHead(frame)),
      grpc::Slice(
          const_cast<uint8_t*>(frame.data.data()), frame.data.size(),
          [](void* user_data) { delete static_cast<Owner*>(user_data); },
          held.release())};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace dcp::server
