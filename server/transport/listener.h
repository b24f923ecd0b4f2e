// SPDX-License-Identifier: Apache-2.0
// Listener: the sockets on which a server listens at one address; there are
// several if the name has several addresses. Made and used by one thread.
#ifndef SERVER_TRANSPORT_LISTENER_H_
#define SERVER_TRANSPORT_LISTENER_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace dcp::server {

class Listener {
 public:
  // `address` is as ParseAddress returns it. Unavailable if the address is in
  // use: another server has the port or listens on the unix socket. The socket
  // file of a server that has ended is replaced; any other file never is.
  static absl::StatusOr<Listener> Open(const std::string& address);
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = delete;
  // Closes the sockets and removes the unix socket, unless another server has
  // put a socket there.
  ~Listener();

  // With the chosen port in place of 0.
  const std::string& address() const { return address_; }
  // Nonblocking; owned by this.
  const std::vector<int>& sockets() const { return sockets_; }

 private:
  explicit Listener(std::string address) : address_(std::move(address)) {}

  absl::Status OpenUnix(const std::string& path);
  absl::Status OpenTcp();

  std::string address_;
  std::vector<int> sockets_;
  std::string unix_path_;  // empty: not a unix socket
  dev_t unix_device_ = 0;
  ino_t unix_inode_ = 0;
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_LISTENER_H_
