// GuardedReads: passes the bytes of every read of gRPC through a FrameGuard.
// gRPC 1.51 has no hook to look at the bytes of a connection, so the linker
// redirects gRPC's calls of recvmsg and SSL_read to functions in this file
// (--wrap in BUILD.bazel); both functions are public and do not change. To
// gRPC, a connection that exceeds a limit looks as if it had broken.
//
// Plaintext connections are guarded once they are registered here. TLS
// connections are always guarded; their bytes are known only after OpenSSL has
// decrypted them. Any thread.
#ifndef SERVER_TRANSPORT_GUARDED_READS_H_
#define SERVER_TRANSPORT_GUARDED_READS_H_

#include <cstdint>

#include "server/transport/frame_guard.h"

namespace dcp::server {

// A number that is unique to a socket, even among later sockets with the same
// descriptor; 0 if `fd` is not a socket.
uint64_t SocketCookie(int fd);

// Guards `fd`, an HTTP/2 connection in plaintext, until it is closed.
void GuardReads(int fd);

// The calls that gRPC holds in this process, for FrameGuard. The server counts
// them and sets how many there may be.
CallLoad& ProcessCallLoad();

// The number of connections that were ended because of what they sent, since
// the start.
uint64_t NumConnectionsCut();

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_GUARDED_READS_H_
