// SPDX-License-Identifier: Apache-2.0
// dcp-server with a root in a real object store: jobs of every kind, a daemon
// that is killed during a job and started again, and paths that lead out.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/server_process.h"
#include "tests/testing/object_server.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::ObjectServer;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

class StoreDaemonTest : public ::testing::Test {
 protected:
  StoreDaemonTest() : server_(ObjectServer::Get()) {
    SampleState state;
    for (int i = 0; i < 8; ++i) {
      state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"),
                             DType::kFloat32, {1024, 1500}));
    }
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(*fs_, source_, state.state(), coordinator, {}));
  }

  // At the same address each time.
  std::unique_ptr<ServerProcess> StartDaemon() {
    auto daemon = std::make_unique<ServerProcess>(std::vector<std::string>{
        "tests/testing/programs/dcp-server",
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--root=", kRoot),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        absl::StrCat("--listen=", address_.empty() ? "127.0.0.1:0" : address_),
        "--drain=0s"});
    if (daemon->WaitUntilItSays("tokens=no")) {
      address_ = daemon->WordAfter("event=start address=");
    } else {
      ADD_FAILURE() << daemon->said();
    }
    return daemon;
  }

  // Runs dcp-convert at the daemon.
  std::unique_ptr<ServerProcess> Start(std::vector<std::string> words) const {
    words.insert(words.begin(), "tests/testing/programs/dcp-convert");
    words.insert(words.end(), {"--server", address_});
    return std::make_unique<ServerProcess>(std::move(words));
  }

  void Expect(int code, const std::vector<std::string>& words,
              absl::string_view said = "") const {
    const auto process = Start(words);
    EXPECT_EQ(process->Wait(), code) << process->said();
    EXPECT_THAT(process->said(), HasSubstr(std::string(said)));
  }

  // Expects at `path` the same checkpoint as the source, whole.
  void ExpectSame(const std::string& path) {
    const auto diff = DiffCheckpoints(*fs_, source_, path, DiffOptions());
    ASSERT_OK(diff.status());
    EXPECT_TRUE(diff->findings.empty()) << path;
    const auto report = VerifyCheckpoint(*fs_, path, {});
    ASSERT_OK(report.status());
    EXPECT_TRUE(report->findings.empty()) << path;
  }

  static constexpr char kRoot[] = "s3://tessera/daemon/root";
  static std::string InRoot(absl::string_view name) {
    return absl::StrCat(kRoot, "/", name);
  }

  ObjectServer& server_;
  const std::unique_ptr<FileSystem> fs_ = NewDefaultFileSystem();
  const TempDir dir_;
  const std::string source_ =
      (dir_.WriteFile("data/note", ""), dir_.Join("data/source"));
  std::string address_;
};

TEST_F(StoreDaemonTest, JobsReadWriteAndVerifyBelowTheRootOnly) {
  const auto daemon = StartDaemon();
  const std::string whole = InRoot("whole");
  const std::string columns = InRoot("columns");
  Expect(0, {"convert", source_, whole});
  Expect(0, {"reshard", whole, columns, "--mesh", "shard=3"});
  Expect(0, {"verify", columns});
  Expect(0, {"inspect", columns}, "layer7.weight");
  Expect(0, {"diff", source_, columns});
  Expect(0, {"consolidate", columns, dir_.Join("data/model.safetensors")});
  ExpectSame(columns);
  ExpectSame(dir_.Join("data/model.safetensors"));

  // The daemon's credentials could reach it.
  ASSERT_OK(WriteFile(*fs_, "s3://tessera/daemon/secret", "secret"));
  for (const std::string path :
       {"s3://tessera/daemon/secret", "s3://tessera/daemon/root-2/x",
        "s3://tessera/other", "s3://stranger/x"}) {
    Expect(3, {"inspect", path}, "is not below a root");
    Expect(3, {"convert", source_, path}, "is not below a root");
  }
  Expect(2, {"inspect", InRoot("../secret")}, "..");
  Expect(2, {"inspect", InRoot("whole?endpoint_override=127.0.0.1:1")},
         "query");
}

TEST_F(StoreDaemonTest, JobsContinueAfterAKillAndARestart) {
  for (const std::string name : {"dcp", "model.pt"}) {
    SCOPED_TRACE(name);
    const std::string dst = InRoot(absl::StrCat("killed/", name));
    auto daemon = StartDaemon();
    const auto client = Start({"convert", source_, dst});
    EXPECT_TRUE(daemon->WaitUntilItSays("event=job_started"));
    daemon->LetRun(absl::Milliseconds(100));
    EXPECT_TRUE(daemon->Kill());
    daemon = StartDaemon();
    EXPECT_EQ(client->Wait(), 0) << client->said() << daemon->said();
    EXPECT_THAT(daemon->said(), HasSubstr("event=job_recovered"));
    ExpectSame(dst);
  }
  const auto litter = FindLitter(*fs_, InRoot("killed"), INT64_MAX, {});
  ASSERT_OK(litter.status());
  EXPECT_TRUE(litter->uploads.empty());
  EXPECT_TRUE(litter->files.empty());
}

}  // namespace
}  // namespace dcp
