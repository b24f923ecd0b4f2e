// SPDX-License-Identifier: Apache-2.0
// ClientOptions: how a program reaches a daemon. Plain data without gRPC's
// headers, for code that only passes it on.
#ifndef CLIENT_CLIENT_OPTIONS_H_
#define CLIENT_CLIENT_OPTIONS_H_

#include <string>

#include "client/backoff.h"

namespace dcp::client {

struct ClientOptions {
  // "host:7420", "[::1]:7420" or "unix:/run/dcp-server.sock".
  std::string address = {};

  // With TLS the server's certificate is checked against `ca_file`, or against
  // the system's authorities if it is empty. A `ca_file` implies TLS. PEM
  // files.
  bool tls = false;
  std::string ca_file = {};
  // This client's certificate, if the server requires one (mutual TLS); set
  // both or neither.
  std::string cert_file = {};
  std::string key_file = {};

  // The bearer token: the text of `token_file`, or else the value of the
  // environment variable `token_variable`, or none.
  std::string token_file = {};
  std::string token_variable = "TESSERA_TOKEN";

  RetryOptions retry = {};
};

}  // namespace dcp::client

#endif  // CLIENT_CLIENT_OPTIONS_H_
