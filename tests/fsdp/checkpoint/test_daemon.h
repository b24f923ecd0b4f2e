// SPDX-License-Identifier: Apache-2.0
// TestDaemon: a dcp-server in the test's process, on a free port, with a
// separate root. The test's ranks are new processes and find it there. For the
// test's thread.
#ifndef TESTS_FSDP_CHECKPOINT_TEST_DAEMON_H_
#define TESTS_FSDP_CHECKPOINT_TEST_DAEMON_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "server/options/server_options.h"
#include "server/server.h"
#include "tests/testing/ranks.h"
#include "tests/testing/temp_dir.h"

namespace fsdp::testing {

class TestDaemon {
 public:
  // `options` override defaults: TLS, tokens.
  explicit TestDaemon(dcp::server::ServerOptions options = {});

  // False in a rank, which knows only the daemon's address.
  bool is_here() const { return server_ != nullptr; }
  const std::string& address() const { return address_; }
  // For a checkpoint below the root: the path on this machine, and the URL.
  std::string Path(absl::string_view name) const;
  std::string Url(absl::string_view name) const;
  // The options with which RunRanks lets ranks find it.
  RanksOptions ForRanks() const;

  // From now on, no server answers at the address.
  void Stop() { server_ = nullptr; }

 private:
  std::unique_ptr<dcp::testing::TempDir> dir_;
  std::string root_;
  std::string address_;
  std::unique_ptr<dcp::server::Server> server_;
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_CHECKPOINT_TEST_DAEMON_H_
