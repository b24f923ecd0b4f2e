// SPDX-License-Identifier: Apache-2.0
// Message compression: limits how far a compressed request is unpacked, and
// compresses answers on request. gRPC 1.51 unpacks a whole request before it
// checks the size, so that 4 MiB could become 4 GiB. The linker therefore
// redirects gRPC's calls to zlib's inflate to a function in this file (--wrap
// in BUILD.bazel), which stops shortly after the limit. gRPC then refuses the
// message as too large. Any thread.
#ifndef SERVER_TRANSPORT_COMPRESSION_H_
#define SERVER_TRANSPORT_COMPRESSION_H_

#include <cstdint>

#include "grpcpp/server_context.h"

namespace dcp::server {

// Sets the limit for messages that this process receives from now on: a message
// that unpacks to more is cut a little after the limit. Must be the largest
// message that gRPC accepts. Without a call there is no limit.
void BoundDecompression(uint64_t max_message_bytes);

// Compresses the answers to this call with gzip if the metadata asks for it:
// "accept-encoding: gzip". The similar header that gRPC itself sends does not
// help: it says only which encodings a client can read, and all clients say
// that they can read gzip.
void CompressIfAsked(grpc::CallbackServerContext& context);

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_COMPRESSION_H_
