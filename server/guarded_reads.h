// GuardedReads: puts a FrameGuard before every read of gRPC. The linker leads
// gRPC's calls of recvmsg and SSL_read to functions of this file (--wrap in
// BUILD.bazel), because gRPC 1.51 has no place of its own where the bytes of a
// connection can be looked at; both functions are public and do not change. A
// connection that goes beyond a bound looks to gRPC as if it had broken.
//
// Connections of plaintext are guarded once they are registered here, those of
// TLS, whose bytes are known behind OpenSSL only, always. Any thread.
#ifndef SERVER_GUARDED_READS_H_
#define SERVER_GUARDED_READS_H_

#include <cstdint>

#include "server/frame_guard.h"

namespace dcp::server {

// What tells a socket from all others, also from a later one that has the same
// descriptor; 0 where `fd` is not a socket.
uint64_t SocketCookie(int fd);

// The connection, which speaks HTTP/2 in plaintext, is guarded until it is
// closed.
void GuardReads(int fd);

// The calls that gRPC holds in this process; FrameGuard knows why. Who serves
// counts them and says how many there may be.
CallLoad& ProcessCallLoad();

// Connections that were ended because of what they sent, since the start.
uint64_t NumConnectionsCut();

}  // namespace dcp::server

#endif  // SERVER_GUARDED_READS_H_
