// SPDX-License-Identifier: Apache-2.0
// A training run's checkpoints: when they are saved, which are kept, and where
// training resumes.

#include "fsdp/checkpoint/checkpoint_manager.h"

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/destination/step_directories.h"
#include "dcp/io/file_system.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

StateDict StateAt(int64_t step) {
  return {{"step", step}, {"a", at::full({100}, static_cast<double>(step))}};
}

std::vector<int64_t> StepsIn(const std::string& directory) {
  const auto fs = dcp::NewPosixFileSystem();
  return dcp::ListSteps(*fs, directory).value_or(std::vector<int64_t>());
}

TEST(CheckpointManager, SavesKeepsRemovesAndResumes) {
  RunRanks(2, [] {
    init_process_group();
    const std::string dir = SharedDir() + "/deep/run";
    CheckpointManagerOptions options{
        .save_every = 2, .keep_last = 2, .keep_every = 6, .log = [](auto&) {}};
    for (const bool async : {true, false}) {
      options.async = async;
      CheckpointManager manager(dir, options);
      StateDict state = StateAt(0);
      EXPECT_THAT(manager.resume(state),
                  IsOkAndHolds(async ? std::optional<int64_t>() : 12));
      for (int64_t step = async ? 0 : 12; step < (async ? 12 : 16); ++step) {
        EXPECT_OK(manager.before_optimizer_step());
        ASSERT_OK_AND_ASSIGN(const bool due, manager.should_save(step + 1));
        EXPECT_EQ(due, (step + 1) % 2 == 0);
        if (due) {
          EXPECT_OK(manager.save(step + 1, StateAt(step + 1)));
        }
        EXPECT_FALSE(manager.should_exit());
      }
      EXPECT_OK(manager.finish());
    }
    CheckpointManager manager(dir, options);
    StateDict state = StateAt(0);
    EXPECT_THAT(manager.resume(state), IsOkAndHolds(Optional(16)));
    EXPECT_EQ(*state.find("step")->get_if<int64_t>(), 16);
    EXPECT_EQ(state.find("a")->get_if<at::Tensor>()->sum().item<double>(),
              1600);
    EXPECT_THAT(StepsIn(dir), ElementsAre(6, 12, 14, 16));
  });
}

TEST(CheckpointManager, LatestSkipsAndLogsTornSteps) {
  const TempDir dir;
  std::vector<std::string> told;
  const auto log = [&](const std::string& text) { told.push_back(text); };
  CheckpointManager manager(dir.path(), {.async = false, .log = log});
  for (const int64_t step : {1, 2, 3, 4}) {
    ASSERT_OK(manager.save(step, StateAt(step)));
  }
  std::filesystem::remove(manager.path_of(4) + "/.metadata");
  std::filesystem::resize_file(manager.path_of(3) + "/__0_0.distcp", 10);
  std::filesystem::remove(manager.path_of(2) + "/__0_0.distcp");
  EXPECT_THAT(manager.latest(), IsOkAndHolds(Optional(1)));
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[0], HasSubstr("step-4: it has no .metadata"));
  EXPECT_THAT(told[1], HasSubstr("step-3"));
  EXPECT_THAT(told[2], HasSubstr("step-2"));
  std::filesystem::remove_all(manager.path_of(1));
  EXPECT_THAT(manager.latest(), IsOkAndHolds(std::nullopt));
}

TEST(CheckpointManager, SigtermOfOneRankSavesAndEndsAll) {
  RunRanks(2, [] {
    init_process_group();
    CheckpointManager manager(SharedDir() + "/run", {.log = [](auto&) {}});
    int64_t step = 0;
    for (; step < 100; ++step) {
      if (step == 5 && get_rank() == 1) raise(SIGTERM);
      ASSERT_OK_AND_ASSIGN(const bool due, manager.should_save(step + 1));
      if (due) {
        EXPECT_OK(manager.save(step + 1, StateAt(step + 1)));
      }
      if (manager.should_exit()) break;
    }
    EXPECT_EQ(step, 5);
    EXPECT_OK(manager.finish());
    EXPECT_THAT(manager.latest(), IsOkAndHolds(Optional(6)));
  });
}

TEST(CheckpointManager, FailedSaveKeepsTheStepBeforeAndIsReported) {
  RunRanks(2, [] {
    init_process_group();
    const std::string dir = SharedDir() + "/run";
    CheckpointManager manager(
        dir, {.keep_last = 1, .save_on_sigterm = false, .log = [](auto&) {}});
    ASSERT_OK(manager.save(1, StateAt(1)));
    StateDict bad = StateAt(2);
    if (get_rank() == 1) bad["bad"] = at::Tensor();
    ASSERT_OK(manager.save(2, bad));
    EXPECT_THAT(manager.save(3, StateAt(3)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad")));
    EXPECT_THAT(StepsIn(dir), ElementsAre(1));
    ASSERT_OK(manager.save(4, StateAt(4)));
    EXPECT_OK(manager.finish());
    fsdp::testing::WaitForAllRanks();
    EXPECT_THAT(StepsIn(dir), ElementsAre(4));
  });
}

}  // namespace
}  // namespace fsdp
