// SPDX-License-Identifier: Apache-2.0
// GuardedConnections: passes the bytes of every connection of the server
// through a FrameGuard, and ends connections that take too much. gRPC 1.51 has
// no hook to look at the bytes of a connection, so the linker redirects gRPC's
// calls of recvmsg, sendmsg, close and of OpenSSL to functions in the .cc file
// (--wrap in BUILD.bazel); these are public and do not change. To gRPC, a
// connection that exceeds a limit looks as if it had broken.
//
// The bytes of a TLS connection are known only after OpenSSL has decrypted
// them. gRPC makes the SSL object of a connection while it is handed over, on
// the same thread, which shows to which connection it belongs. Any thread.
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
// kMaxRequestTime. If any connection was ended because of what it sent since
// the last call, returns its memory to the system. To be called every few
// seconds, by one thread.
void CutLateRequests(absl::Duration now);

// Counts a call that needs no token, as long as the result lives. `peer` is as
// gRPC names it. Null for a unix socket, where clients have no names of their
// own.
std::shared_ptr<void> CountPublicCall(absl::string_view peer);

// What the calls of this process take.
CallLoad& ProcessCallLoad();

// The number of connections that were ended because of what they sent, since
// the start.
uint64_t NumConnectionsCut();

// The number of TLS connections that ended before their client had sent
// anything that could be decrypted, since the start.
uint64_t NumFailedHandshakes();

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_GUARDED_CONNECTIONS_H_
