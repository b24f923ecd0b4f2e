// Compression of messages: how much of a compressed request is unpacked, and
// which answers are compressed. gRPC 1.51 unpacks a request of any size before
// it looks at its size, so that 4 MiB could become 4 GiB; the linker leads its
// calls of zlib's inflate to a function of this file (--wrap in BUILD.bazel),
// which stops soon behind the bound. gRPC then refuses the message as too
// large. Any thread.
#ifndef SERVER_COMPRESSION_H_
#define SERVER_COMPRESSION_H_

#include <cstdint>

#include "grpcpp/server_context.h"

namespace dcp::server {

// Of messages that this process receives from now on: those that are larger
// unpacked are cut a little behind it. It must be the size up to which gRPC
// takes messages. Without it there is no bound.
void BoundDecompression(uint64_t max_message_bytes);

// Compresses the answers of this call with gzip if its metadata asks for it:
// "accept-encoding: gzip". What gRPC itself sends of the kind says only what a
// client can read, and all say that they can.
void CompressIfAsked(grpc::CallbackServerContext& context);

}  // namespace dcp::server

#endif  // SERVER_COMPRESSION_H_
