// SPDX-License-Identifier: Apache-2.0
// GuardedConnections: passes the bytes of each of the server's connections
// through a FrameGuard, and ends connections that take too much. gRPC 1.51 has
// no hook to look at a connection's bytes, so the linker redirects gRPC's calls
// to recvmsg, sendmsg, close and OpenSSL to functions in the .cc file (--wrap
// in BUILD.bazel); these are public and do not change. To gRPC, a connection
// that exceeds a limit looks as if it had broken.
//
// The bytes of a TLS connection are known only after OpenSSL has decrypted
// them. gRPC makes the SSL object while a connection is handed over, on the
// same thread, so the object is matched to the connection. Any thread.
#ifndef SERVER_TRANSPORT_GUARDED_CONNECTIONS_H_
#define SERVER_TRANSPORT_GUARDED_CONNECTIONS_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/transport/call_load.h"

namespace dcp::server {

// A number that is unique to a socket, even among later sockets with the same
// descriptor; 0 if `fd` is not a socket.
uint64_t SocketCookie(int fd);

enum class Encryption { kNone, kTls };

// Guards the connection `fd` until it is closed. `hand_over` gives it to gRPC.
void GuardConnection(int fd, Encryption encryption,
                     absl::FunctionRef<void()> hand_over);

// Ends connections with a request that is incomplete for longer than
// kMaxRequestTime. If any connection was ended since the last call because its
// client sent too much, returns the memory to the system. To be called every
// few seconds, by one thread.
void CutLateRequests(absl::Duration now);

// Counts a call that needs no token, as long as the result lives. `peer` is as
// gRPC names it. Null for a unix socket, where clients have no names of their
// own.
std::shared_ptr<void> CountPublicCall(absl::string_view peer);
// The same for a call with a valid token.
std::shared_ptr<void> CountClientCall(absl::string_view peer);

// The load from all calls in this process.
CallLoad& ProcessCallLoad();

// How many connections were ended since the start because the client sent too
// much.
uint64_t NumConnectionsCut();

// How many TLS connections ended since the start before the client had sent
// anything that could be decrypted.
uint64_t NumFailedHandshakes();

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_GUARDED_CONNECTIONS_H_
