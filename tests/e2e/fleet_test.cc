// SPDX-License-Identifier: Apache-2.0
// Three daemons that share conversions; some are killed, and started again or
// not.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/server_process.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() {
    dir_.WriteFile("data/note", "");
    SampleState state;
    for (int i = 0; i < 8; ++i) {
      state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"),
                             DType::kFloat32, {1024, 1500}));
    }
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(*fs_, source_, state.state(), coordinator, {}));
    for (size_t i = 0; i < daemons_.size(); ++i) StartDaemon(i);
  }

  // At the same address each time.
  void StartDaemon(size_t i) {
    const std::string& address = addresses_[i];
    daemons_[i] = std::make_unique<ServerProcess>(std::vector<std::string>{
        "tests/testing/programs/dcp-server",
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join(absl::StrCat("state", i))),
        absl::StrCat("--listen=", address.empty() ? "127.0.0.1:0" : address)});
    if (daemons_[i]->WaitUntilItSays("tokens=no")) {
      addresses_[i] = daemons_[i]->WordAfter("event=start address=");
    } else {
      ADD_FAILURE() << daemons_[i]->said();
    }
  }

  std::unique_ptr<ServerProcess> Reshard() {
    return std::make_unique<ServerProcess>(std::vector<std::string>{
        "tests/testing/programs/dcp-convert", "reshard", source_, dst_,
        "--mesh", "shard=6", "--progress", "none", "--server",
        absl::StrJoin(addresses_, ",")});
  }

  void ExpectDone() {
    const auto diff = DiffCheckpoints(*fs_, source_, dst_, DiffOptions());
    ASSERT_OK(diff.status());
    EXPECT_TRUE(diff->findings.empty());
    const auto report = VerifyCheckpoint(*fs_, dst_, {});
    ASSERT_OK(report.status());
    EXPECT_TRUE(report->findings.empty());
    // Six files, the index, the digests.
    EXPECT_EQ(fs_->List(dst_)->size(), 8u);
  }

  const TempDir dir_;
  const std::string source_ = dir_.Join("data/source");
  const std::string dst_ = dir_.Join("data/dst");
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  std::vector<std::unique_ptr<ServerProcess>> daemons_{3};
  std::vector<std::string> addresses_{3};
};

TEST_F(FleetTest, DaemonsShareWorkThroughAKillAndARestart) {
  const auto client = Reshard();
  EXPECT_TRUE(daemons_[1]->WaitUntilItSays("event=job_started"));
  EXPECT_TRUE(daemons_[1]->Kill());
  StartDaemon(1);
  EXPECT_EQ(client->Wait(), 0) << client->said();
  EXPECT_THAT(client->said(), HasSubstr("wrote 6 of 6 pieces"));
  for (const auto& daemon : daemons_) {
    EXPECT_THAT(daemon->said(), HasSubstr("event=job_ended"));
  }
  ExpectDone();
}

TEST_F(FleetTest, ADeadDaemonsShareMoves) {
  EXPECT_TRUE(daemons_[2]->Kill());
  const auto client = Reshard();
  EXPECT_EQ(client->Wait(), 0) << client->said();
  EXPECT_THAT(client->said(),
              AllOf(HasSubstr(absl::StrCat("share 2 of 3 goes to another "
                                           "server: ",
                                           addresses_[2])),
                    HasSubstr("wrote 6 of 6 pieces")));
  ExpectDone();
}

TEST_F(FleetTest, OneDaemonsErrorReachesAll) {
  ASSERT_OK(fs_->MakeDirectory(dst_));
  ASSERT_OK(WriteFile(*fs_, JoinPath(dst_, ".metadata"), "something"));
  const auto client = Reshard();
  EXPECT_EQ(client->Wait(), 5) << client->said();
  EXPECT_THAT(client->said(), HasSubstr("overwrite"));
}

}  // namespace
}  // namespace dcp
