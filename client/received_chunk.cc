// SPDX-License-Identifier: Apache-2.0
// Parses a chunk message without copying the payload.
// server/reading/chunk_frame.cc writes such messages and shows their format.
#include "client/received_chunk.h"

#include <algorithm>

#include "google/protobuf/io/coded_stream.h"

namespace dcp::client {
namespace {

using ::google::protobuf::io::CodedInputStream;

// A tag is (field number << 3) | wire type.
constexpr uint32_t kChunkTag = 0x12;
constexpr uint32_t kPartTag = 0x08;
constexpr uint32_t kOffsetTag = 0x10;
constexpr uint32_t kDataTag = 0x1a;
constexpr uint32_t kCrcTag = 0x25;

bool ParseData(CodedInputStream& input, ReceivedChunk& chunk) {
  uint32_t length = 0;
  if (!chunk.pieces.empty() || !input.ReadVarint32(&length)) return false;
  chunk.num_bytes = length;
  while (length > 0) {
    const void* data = nullptr;
    int size = 0;
    if (!input.GetDirectBufferPointer(&data, &size) || size <= 0) return false;
    const uint32_t taken = std::min(length, static_cast<uint32_t>(size));
    chunk.pieces.emplace_back(static_cast<const uint8_t*>(data), taken);
    if (!input.Skip(static_cast<int>(taken))) return false;
    length -= taken;
  }
  return true;
}

bool ParseField(uint32_t tag, CodedInputStream& input, ReceivedChunk& chunk) {
  switch (tag) {
    case kPartTag:
      return input.ReadVarint32(&chunk.part);
    case kOffsetTag:
      return input.ReadVarint64(&chunk.offset);
    case kCrcTag:
      return input.ReadLittleEndian32(&chunk.crc32c);
    case kDataTag:
      return ParseData(input, chunk);
    default:
      return false;
  }
}

}  // namespace

ReceivedChunk ReceivedChunk::FromChunk(
    const tessera::v1::ReadTensorsResponse::Chunk& message) {
  ReceivedChunk chunk{.part = message.part(),
                      .offset = message.offset(),
                      .crc32c = message.crc32c(),
                      .pieces = {},
                      .num_bytes = message.data().size()};
  chunk.pieces.push_back(AsBytes(message.data()));
  return chunk;
}

bool ChunkParser::Parse(ReceivedChunk& chunk) {
  CodedInputStream input(&reader_);
  uint32_t length = 0;
  if (input.ReadTag() != kChunkTag || !input.ReadVarint32(&length)) {
    return false;
  }
  const CodedInputStream::Limit limit =
      input.PushLimit(static_cast<int>(length));
  for (uint32_t tag = input.ReadTag(); tag != 0; tag = input.ReadTag()) {
    if (!ParseField(tag, input, chunk)) return false;
  }
  if (input.BytesUntilLimit() != 0) return false;
  input.PopLimit(limit);
  return input.ReadTag() == 0 && input.ConsumedEntireMessage();
}

}  // namespace dcp::client
