// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/step_directories.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void SaveStep(FileSystem& fs, int64_t step, absl::string_view run = "/run") {
  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {4, 3}));
  state.AddObject("step", Value::Int(step));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, StepPath(run, step), state.state(), coordinator, {}));
}

TEST(StepDirectories, ListsStepsByNumberAndNothingElse) {
  SimStorage fs;
  EXPECT_THAT(ListSteps(fs, "/run"), IsOkAndHolds(IsEmpty()));
  ASSERT_OK(MakeDirectories(fs, "/run"));
  for (const std::string name :
       {"step-10", "step-9", "step-007", "step-x", "other", "step--1"}) {
    ASSERT_OK(fs.MakeDirectory("/run/" + name));
  }
  ASSERT_OK(WriteFile(fs, "/run/step-11", "a file"));
  EXPECT_THAT(ListSteps(fs, "/run"), IsOkAndHolds(ElementsAre(9, 10)));
}

TEST(StepDirectories, MakesDirectoriesAbove) {
  SimStorage fs;
  ASSERT_OK(MakeDirectories(fs, "/a/b/c"));
  ASSERT_OK(MakeDirectories(fs, "/a/b/c"));
  EXPECT_OK(fs.Stat("/a/b/c"));
}

TEST(StepDirectories, FindsTornSteps) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/run"));
  SaveStep(fs, 1);
  EXPECT_OK(CheckWhole(fs, "/run/step-1"));

  SaveStep(fs, 2);
  ASSERT_OK(fs.Remove("/run/step-2/.metadata"));
  EXPECT_THAT(CheckWhole(fs, "/run/step-2"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(".metadata")));

  SaveStep(fs, 3);
  ASSERT_OK(fs.Remove("/run/step-3/__0_0.distcp"));
  EXPECT_THAT(CheckWhole(fs, "/run/step-3"),
              StatusIs(::testing::_, HasSubstr("__0_0.distcp")));

  SaveStep(fs, 4);
  const std::string data = "/run/step-4/__0_0.distcp";
  ASSERT_OK_AND_ASSIGN(const std::string bytes,
                       ReadFile(fs, data, 1 << 20, true));
  ASSERT_OK(fs.Remove(data));
  ASSERT_OK(WriteFile(fs, data, absl::string_view(bytes).substr(0, 700)));
  EXPECT_THAT(CheckWhole(fs, "/run/step-4"),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(StepDirectories, KeepsTheLastAndEveryMth) {
  const std::vector<int64_t> steps{100, 200, 300, 400, 500};
  EXPECT_THAT(StepsToRemove(steps, 500, {}), IsEmpty());
  EXPECT_THAT(StepsToRemove(steps, 500, {.keep_last = 2}),
              ElementsAre(100, 200, 300));
  EXPECT_THAT(StepsToRemove(steps, 500, {.keep_last = 2, .keep_every = 200}),
              ElementsAre(100, 300));
  EXPECT_THAT(StepsToRemove(steps, 500, {.keep_last = 9}), IsEmpty());
  // Steps after the durable one are neither counted nor removed.
  EXPECT_THAT(StepsToRemove(steps, 300, {.keep_last = 1}),
              ElementsAre(100, 200));
}

TEST(StepDirectories, RemovesOldAndLeftOverSteps) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/run"));
  for (const int64_t step : {1, 2, 3, 4, 5}) SaveStep(fs, step);
  ASSERT_OK(fs.Remove("/run/step-2/.metadata"));
  std::vector<std::string> told;
  RemoveOldSteps(fs, "/run", 4, {.keep_last = 2},
                 [&](const std::string& text) { told.push_back(text); });
  EXPECT_THAT(ListSteps(fs, "/run"), IsOkAndHolds(ElementsAre(3, 4, 5)));
  EXPECT_THAT(told, ElementsAre("removed /run/step-2", "removed /run/step-1"));
}

TEST(StepDirectories, KeepsAStepThatIsBeingWritten) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/run"));
  ASSERT_OK(fs.MakeDirectory("/run/step-1"));
  SaveStep(fs, 2);
  ASSERT_OK_AND_ASSIGN(
      auto lock, DestinationLock::Take(
                     fs, DestinationLock::PathInside("/run/step-1"), "a save"));
  std::vector<std::string> told;
  const auto log = [&](const std::string& text) { told.push_back(text); };
  RemoveOldSteps(fs, "/run", 2, {.keep_last = 1}, log);
  EXPECT_THAT(told, ElementsAre(HasSubstr("/run/step-1 is left: /run/step-1 is "
                                          "being written by a save")));
  lock.reset();
  RemoveOldSteps(fs, "/run", 2, {.keep_last = 1}, log);
  EXPECT_THAT(ListSteps(fs, "/run"), IsOkAndHolds(ElementsAre(2)));
}

TEST(StepDirectories, InAStoreStepsWithoutAnIndexStay) {
  constexpr absl::string_view kRun = "s3://bucket/run";
  SimObjectServer server;
  ObjectFileSystem fs(server.Opener());
  EXPECT_THAT(ListSteps(fs, kRun), IsOkAndHolds(IsEmpty()));
  ASSERT_OK(MakeDirectories(fs, std::string(kRun)));
  for (int64_t step = 1; step <= 4; ++step) SaveStep(fs, step, kRun);
  server.PutBytes("run/step-2/notes", "a file of the user");
  server.PutBytes("run/step-3/.metadata", "torn");
  ASSERT_OK(fs.Remove("s3://bucket/run/step-1/.metadata"));
  EXPECT_OK(CheckWhole(fs, StepPath(kRun, 2)));
  EXPECT_FALSE(CheckWhole(fs, StepPath(kRun, 3)).ok());
  EXPECT_THAT(CheckWhole(fs, StepPath(kRun, 1)),
              StatusIs(absl::StatusCode::kDataLoss));
  std::vector<std::string> log;
  RemoveOldSteps(fs, kRun, 4, {.keep_last = 2},
                 [&](const std::string& line) { log.push_back(line); });
  EXPECT_THAT(log, ElementsAre("removed s3://bucket/run/step-2"));
  EXPECT_THAT(ListSteps(fs, kRun), IsOkAndHolds(ElementsAre(1, 3, 4)));
}

TEST(StepDirectories, CrashWhileRemovingLeavesNoStepThatLooksWhole) {
  bool crashed = true;
  for (uint64_t mutation = 0; crashed; ++mutation) {
    SimStorage fs({.seed = mutation + 1});
    ASSERT_OK(MakeDirectories(fs, "/run"));
    for (const int64_t step : {1, 2}) SaveStep(fs, step);
    fs.CrashAfter(mutation);
    RemoveOldSteps(fs, "/run", 2, {.keep_last = 1}, [](const std::string&) {});
    crashed = fs.crashed();
    fs.Reboot();
    EXPECT_OK(CheckWhole(fs, "/run/step-2")) << mutation;
    if (fs.Stat("/run/step-1/.metadata").ok()) {
      EXPECT_OK(CheckWhole(fs, "/run/step-1")) << mutation;
    }
    // At least the index, the directory's sync, data, digests and directory.
    EXPECT_TRUE(crashed || mutation >= 4) << mutation;
  }
}

}  // namespace
}  // namespace dcp
