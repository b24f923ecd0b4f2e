// SPDX-License-Identifier: Apache-2.0
// Starts fake-gcs-server and waits until it answers.
// Tested by tests/plugins/arrow/gs_store_test.cc.
#include "tests/testing/gs_server.h"

#include <stdlib.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

constexpr char kProgram[] = "external/fake_gcs_server/fake-gcs-server";
constexpr char kPlugins[] = "plugins/arrow";

// A folder in `folder` becomes a bucket.
std::vector<std::string> Words(const TempDir& folder,
                               const std::string& address) {
  std::filesystem::create_directory(folder.Join(GsServer::kBucket));
  return {kProgram,
          "-backend=memory",
          "-scheme=http",
          "-host=127.0.0.1",
          absl::StrCat("-port=", address.substr(address.find(':') + 1)),
          absl::StrCat("-public-host=", address),
          absl::StrCat("-external-url=http://", address),
          absl::StrCat("-data=", folder.path())};
}

}  // namespace

GsServer& GsServer::Get() {
  static GsServer server;
  return server;
}

GsServer::GsServer()
    : address_(absl::StrCat("127.0.0.1:", port_.number())),
      process_(Words(dir_, address_)) {
  DCP_CHECK(process_.WaitUntilItSays("server started at"), process_.said());
  setenv("STORAGE_EMULATOR_HOST", absl::StrCat("http://", address_).c_str(), 1);
  setenv("TESSERA_PLUGINS",
         (std::filesystem::current_path() / kPlugins).c_str(), 1);
  // This machine's proxy must not be used.
  for (const char* const name : {"http_proxy", "HTTP_PROXY"}) unsetenv(name);
}

}  // namespace dcp::testing
