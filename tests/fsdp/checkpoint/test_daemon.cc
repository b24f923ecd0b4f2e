// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/checkpoint/test_daemon.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace fsdp::testing {
namespace {

constexpr char kAddress[] = "TESSERA_TEST_DAEMON";
constexpr char kRoot[] = "TESSERA_TEST_DAEMON_ROOT";

}  // namespace

TestDaemon::TestDaemon(dcp::server::ServerOptions options) {
  if (getenv(kAddress) != nullptr) {
    address_ = getenv(kAddress);
    root_ = getenv(kRoot);
    return;
  }
  dir_ = std::make_unique<dcp::testing::TempDir>();
  root_ = dir_->Join("data");
  std::filesystem::create_directories(root_);
  options.listen = "127.0.0.1:0";
  options.roots = {{.path = root_, .writable = false}};
  options.state_dir = dir_->Join("state");
  absl::StatusOr<std::unique_ptr<dcp::server::Server>> server =
      dcp::server::Server::Create(options);
  DCP_CHECK(server.ok(), server.status().ToString());
  server_ = *std::move(server);
  const absl::StatusOr<std::string> address = server_->Start();
  DCP_CHECK(address.ok(), address.status().ToString());
  address_ = *address;
}

std::string TestDaemon::Path(absl::string_view name) const {
  return absl::StrCat(root_, "/", name);
}

std::string TestDaemon::Url(absl::string_view name) const {
  return absl::StrCat("tessera://", address_, Path(name));
}

RanksOptions TestDaemon::ForRanks() const {
  return {.environment = {{kAddress, address_}, {kRoot, root_}}};
}

}  // namespace fsdp::testing
