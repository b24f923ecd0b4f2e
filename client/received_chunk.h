// SPDX-License-Identifier: Apache-2.0
// ReceivedChunk: a payload message. The bytes stay where gRPC received them, so
// that they are copied only once, to their destination.
#ifndef CLIENT_RECEIVED_CHUNK_H_
#define CLIENT_RECEIVED_CHUNK_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "dcp/base/bytes.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::client {

// The fields of ReadTensorsResponse.Chunk.
struct ReceivedChunk {
  uint32_t part = 0;
  uint64_t offset = 0;
  uint32_t crc32c = 0;
  // The data, in order. The parser or the message from which this was made owns
  // the memory and must outlive it.
  absl::InlinedVector<ByteSpan, 16> pieces;
  uint64_t num_bytes = 0;  // of all pieces

  static ReceivedChunk FromChunk(
      const tessera::v1::ReadTensorsResponse::Chunk& message);
};

// Finds the chunk in a serialized ReadTensorsResponse.
class ChunkParser {
 public:
  // `message` must outlive the parser, and the parser must outlive the pieces
  // of the chunk.
  explicit ChunkParser(grpc::ByteBuffer& message) : reader_(&message) {}

  // Returns false if the message is not a chunk, or has an encoding that only
  // protobuf understands. To be called once.
  bool Parse(ReceivedChunk& chunk);

 private:
  grpc::ProtoBufferReader reader_;
};

}  // namespace dcp::client

#endif  // CLIENT_RECEIVED_CHUNK_H_
