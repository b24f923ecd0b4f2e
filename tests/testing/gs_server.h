// SPDX-License-Identifier: Apache-2.0
// GsServer: fake-gcs-server, a real server for Google Cloud Storage's protocol,
// on loopback. It lives as long as the test program and keeps everything in
// memory. It takes part of a second to start.
#ifndef TESTS_TESTING_GS_SERVER_H_
#define TESTS_TESTING_GS_SERVER_H_

#include <string>

#include "tests/server/server_process.h"
#include "tests/testing/held_port.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

class GsServer {
 public:
  // Starts it at the first call, and sets the environment so that gs:// leads
  // to it through this build's plugin.
  static GsServer& Get();

  GsServer(const GsServer&) = delete;
  GsServer& operator=(const GsServer&) = delete;

  // The server's only bucket.
  static constexpr char kBucket[] = "tessera";

 private:
  GsServer();

  const TempDir dir_;
  // The server must know its address before it starts.
  const HeldPort port_;
  const std::string address_;  // "127.0.0.1:port"
  server::ServerProcess process_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_GS_SERVER_H_
