// SPDX-License-Identifier: Apache-2.0
// Channel: a connection to a daemon, with TLS and a token, that clients share.
// Connects on first use and again whenever the connection is lost. Thread-safe.
#ifndef CLIENT_CHANNEL_H_
#define CLIENT_CHANNEL_H_

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/backoff.h"
#include "client/client_options.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace dcp::client {

class Channel {
 public:
  // Reads the certificate and token files but does not connect. InvalidArgument
  // names the option that is wrong.
  static absl::StatusOr<std::shared_ptr<Channel>> Open(
      const ClientOptions& options);

  const std::shared_ptr<grpc::Channel>& grpc_channel() const {
    return channel_;
  }
  // For a call that begins now.
  Backoff NewBackoff(absl::Duration end, std::stop_token stop) const;

  // One attempt at a call: sets the token and deadline, runs `attempt`, which
  // returns gRPC's status, and cancels it after a stop. The returned status
  // begins with `call`, such as "Inspect".
  absl::Status Attempt(
      absl::string_view call, absl::Duration end, const std::stop_token& stop,
      absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) const;

  // Repeats Attempt until it succeeds or Backoff gives up. Only for calls that
  // are harmless to make twice.
  absl::Status Call(
      absl::string_view call, const CallOptions& options,
      absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) const;

 private:
  Channel(std::shared_ptr<grpc::Channel> channel, std::string token,
          RetryOptions retry)
      : channel_(std::move(channel)), token_(std::move(token)), retry_(retry) {}

  // Shared with the stubs of all clients.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string token_;
  const RetryOptions retry_;
  mutable std::atomic<bool> answered_{false};  // whether the daemon ever did
};

}  // namespace dcp::client

#endif  // CLIENT_CHANNEL_H_
