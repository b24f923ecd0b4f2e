// SPDX-License-Identifier: Apache-2.0

#include "client/channel.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dcp/base/status.h"
#include "dcp/base/steady_time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/rpc_status.h"
#include "proto/rpc_time.h"

namespace dcp::client {
namespace {

// A server that vanished is noticed after kPingEvery plus kPingTimeout. Servers
// reject pings that are more frequent.
constexpr absl::Duration kPingEvery = absl::Seconds(30);
constexpr absl::Duration kPingTimeout = absl::Seconds(20);
// How soon a broken connection is re-established; further retries are up to
// Backoff.
constexpr absl::Duration kMinReconnect = absl::Milliseconds(100);
constexpr absl::Duration kMaxReconnect = absl::Seconds(2);
// An Inspect page with chunks, or a metadata message, can exceed gRPC's default
// of 4 MiB; a daemon never answers with more than this.
constexpr int kMaxAnswerBytes = 256 << 20;

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || text.str().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", errno != 0 ? strerror(errno) : "is empty"));
  }
  return text.str();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(
    const ClientOptions& options) {
  if (options.cert_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "cert_file and key_file must be given together: a client's certificate "
        "and its key");
  }
  if (!options.tls && options.ca_file.empty()) {
    if (options.cert_file.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError("cert_file requires tls or ca_file");
  }
  grpc::SslCredentialsOptions ssl;
  if (!options.ca_file.empty()) {
    DCP_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadFile(options.ca_file));
  }
  if (!options.cert_file.empty()) {
    DCP_ASSIGN_OR_RETURN(ssl.pem_cert_chain, ReadFile(options.cert_file));
    DCP_ASSIGN_OR_RETURN(ssl.pem_private_key, ReadFile(options.key_file));
  }
  return grpc::SslCredentials(ssl);
}

absl::StatusOr<std::string> Token(const ClientOptions& options) {
  std::string token;
  if (!options.token_file.empty()) {
    DCP_ASSIGN_OR_RETURN(token, ReadFile(options.token_file));
  } else if (!options.token_variable.empty()) {
    const char* const value = getenv(options.token_variable.c_str());
    token = value == nullptr ? "" : value;
  }
  absl::StripAsciiWhitespace(&token);
  for (char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(
          "the token must be one word of printable characters");
    }
  }
  return token;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Channel>> Channel::Open(
    const ClientOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError(
        "the server's address is missing; expected host:port");
  }
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                       Credentials(options));
  DCP_ASSIGN_OR_RETURN(std::string token, Token(options));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kPingEvery));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kPingTimeout));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMinReconnect));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMaxReconnect));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMaxReconnect));
  // This library decides about retries, because it knows which calls are
  // harmless to repeat.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  return std::shared_ptr<Channel>(new Channel(
      grpc::CreateCustomChannel(options.address, credentials, arguments),
      std::move(token), options.retry));
}

Backoff Channel::NewBackoff(absl::Duration end, std::stop_token stop) const {
  return Backoff(retry_, answered_, end, std::move(stop));
}

absl::Status Channel::Attempt(
    absl::string_view call, absl::Duration end, const std::stop_token& stop,
    absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) const {
  grpc::ClientContext context;
  if (!token_.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  }
  if (end != absl::InfiniteDuration()) {
    context.set_deadline(RpcTimeIn(end - SteadyNow()));
  }
  const std::stop_callback cancel(stop, [&] { context.TryCancel(); });
  const grpc::Status status = attempt(context);
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) answered_ = true;
  if (!status.ok() && stop.stop_requested()) {
    return absl::CancelledError(absl::StrCat(call, ": stopped"));
  }
  return FromRpcStatus(status, call);
}

absl::Status Channel::Call(
    absl::string_view call, const CallOptions& options,
    absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) const {
  const absl::Duration end = SteadyNow() + options.timeout;
  Backoff backoff = NewBackoff(end, options.stop);
  while (true) {
    const absl::Status status = Attempt(call, end, options.stop, attempt);
    if (status.ok()) return status;
    DCP_RETURN_IF_ERROR(backoff.Wait(status));
  }
}

}  // namespace dcp::client
