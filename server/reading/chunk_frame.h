// SPDX-License-Identifier: Apache-2.0
// ChunkFrame: the wire format of a ReadTensorsResponse that carries a chunk,
// built around bytes that stay where they are, whereas protobuf would copy each
// byte twice. Pure; any thread.
#ifndef SERVER_READING_CHUNK_FRAME_H_
#define SERVER_READING_CHUNK_FRAME_H_

#include <cstdint>
#include <memory>
#include <string>

#include "dcp/base/bytes.h"
#include "grpcpp/support/byte_buffer.h"

namespace dcp::server {

struct ChunkFrame {
  uint32_t part = 0;
  uint64_t offset = 0;  // in the part
  ByteSpan data;        // at least one byte
  uint32_t crc32c = 0;
};

// The bytes before the data. The data itself ends the message.
std::string ChunkFrameHead(const ChunkFrame& frame);

// The whole message. `owner` is held until gRPC no longer uses the data.
grpc::ByteBuffer ChunkFrameBuffer(const ChunkFrame& frame,
                                  std::shared_ptr<const void> owner);

}  // namespace dcp::server

#endif  // SERVER_READING_CHUNK_FRAME_H_
