// SPDX-License-Identifier: Apache-2.0
// Conversions with a journal into an object store whose client dies: the next
// run ends the work, and nothing of the dead one is left.
#include <cstdint>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/routed_file_system.h"
#include "dcp/tensor/placement.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;

// A disk with the sources, and a client of the store.
std::unique_ptr<FileSystem> NewMachine(SimObjectServer& server) {
  std::unique_ptr<FileSystem> fs =
      NewRoutedFileSystem(std::make_unique<SimStorage>(), server.Opener());
  SaveAll(*fs, "/old", {SampleTensor("a", DType::kFloat32, {4, 3})});
  SaveAll(*fs, "/new", SmallModel());
  return fs;
}

struct StoreScenario {
  const char* path;
  bool overwrite = false;
  const char* mesh = "";
  uint64_t max_shard_bytes = 0;  // of safetensors
};

void PrintTo(const StoreScenario& scenario, std::ostream* os) {
  *os << scenario.path << (scenario.overwrite ? " over another" : "");
}

constexpr StoreScenario kScenarios[] = {
    {.path = "s3://bucket/run/dcp"},
    {.path = "s3://bucket/run/dcp", .overwrite = true, .mesh = "shard=3"},
    {.path = "s3://bucket/run/one.safetensors"},
    {.path = "s3://bucket/run/one.pt", .overwrite = true},
    {.path = "s3://bucket/run/shards", .max_shard_bytes = 40}};

// Keeps the records of a job.
struct StoreKeeper {
  std::vector<std::string> records = {};
  size_t stop_after = SIZE_MAX;  // records
  bool keeps = true;
  uint64_t num_files_kept = 0;
};

absl::Status ConvertStore(FileSystem& fs, absl::string_view src,
                          const StoreScenario& scenario, StoreKeeper& keeper) {
  std::stop_source stop;
  ConvertJournal journal;
  journal.before = keeper.records;
  journal.append = [&](std::string record) {
    // A dead machine records nothing.
    const absl::Status alive = fs.Stat("s3://bucket/none").status();
    if (absl::IsUnavailable(alive)) return alive;
    keeper.records.push_back(std::move(record));
    if (keeper.records.size() >= keeper.stop_after) stop.request_stop();
    return absl::OkStatus();
  };
  journal.keeps = [&] { return keeper.keeps; };
  journal.step_bytes = 1;
  ConvertOptions options;
  options.overwrite = scenario.overwrite;
  options.num_lanes = 1;
  options.journal = &journal;
  options.stop = stop.get_token();
  options.on_plan = [&](const ConvertPlan& plan) {
    keeper.num_files_kept = plan.num_files_kept;
  };
  if (scenario.max_shard_bytes > 0) {
    options.to = Format::kSafetensors;
    options.max_shard_bytes = scenario.max_shard_bytes;
  }
  if (*scenario.mesh != '\0') options.mesh = *ParseMesh(scenario.mesh);
  return ConvertCheckpoint(fs, src, scenario.path, std::move(options)).status();
}

void PrepareStore(FileSystem& fs, const StoreScenario& scenario) {
  StoreKeeper keeper;
  if (scenario.overwrite) ASSERT_OK(ConvertStore(fs, "/old", scenario, keeper));
}

uint64_t NumObjectsUndisturbed(const StoreScenario& scenario) {
  SimObjectServer server;
  const auto fs = NewMachine(server);
  PrepareStore(*fs, scenario);
  StoreKeeper keeper;
  EXPECT_OK(ConvertStore(*fs, "/new", scenario, keeper));
  return server.num_objects();
}

class StoreResumption : public ::testing::TestWithParam<StoreScenario> {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }
};

TEST_P(StoreResumption, AfterADeathAtAnyCallTheNextRunEndsTheWork) {
  const StoreScenario& scenario = GetParam();
  const uint64_t num_objects = NumObjectsUndisturbed(scenario);
  uint64_t num_kept = 0;
  bool died = true;
  uint64_t num_runs = 0;
  for (; died; ++num_runs) {
    const uint64_t after = num_runs / 3;  // with three seeds each
    SCOPED_TRACE(absl::StrCat("run ", num_runs, ", dies after ", after));
    ASSERT_LT(after, 100u);
    SimObjectServer server({.seed = num_runs + 1});
    StoreKeeper keeper;
    {
      const auto fs = NewMachine(server);
      PrepareStore(*fs, scenario);
      server.KillClientsAfter(after);
      const absl::Status status = ConvertStore(*fs, "/new", scenario, keeper);
      died = server.clients_died();
      if (!died) EXPECT_OK(status);
      server.Heal();
    }
    // Some die twice.
    if (num_runs % 2 == 0) {
      const auto fs = NewMachine(server);
      server.KillClientsAfter(after / 2);
      ConvertStore(*fs, "/new", scenario, keeper).IgnoreError();
      server.Heal();
    }
    const auto fs = NewMachine(server);
    ASSERT_OK(ConvertStore(*fs, "/new", scenario, keeper));
    num_kept += keeper.num_files_kept;
    ExpectSame(*fs, "/new", scenario.path);
    EXPECT_EQ(server.num_uploads(), 0u);
    EXPECT_EQ(server.num_objects(), num_objects)
        << ::testing::PrintToString(server.Keys());
    if (HasFailure()) return;
  }
  EXPECT_GE(num_runs, 10u);
  // Hidden objects end with their process.
  const bool is_dcp = absl::string_view(scenario.path) == kScenarios[0].path;
  EXPECT_EQ(num_kept > 0, is_dcp);
}

TEST_P(StoreResumption, LeavesNothingWhenItIsStoppedForGood) {
  const StoreScenario& scenario = GetParam();
  SimObjectServer server;
  StoreKeeper keeper;
  std::vector<std::string> before;
  {
    const auto fs = NewMachine(server);
    PrepareStore(*fs, scenario);
    before = server.Keys();
    server.KillClientsAfter(1);
    EXPECT_FALSE(ConvertStore(*fs, "/new", scenario, keeper).ok());
    server.Heal();
  }
  const auto fs = NewMachine(server);
  keeper.keeps = false;
  keeper.stop_after = 1;
  EXPECT_THAT(ConvertStore(*fs, "/new", scenario, keeper),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(server.Keys(), before);
  EXPECT_EQ(server.num_uploads(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, StoreResumption, ::testing::ValuesIn(kScenarios));

TEST(StoreResumptionOfDcp, SparesACheckpointThatCameMeanwhile) {
  const StoreScenario& scenario = kScenarios[0];
  SimObjectServer server;
  StoreKeeper keeper;
  keeper.stop_after = 2;  // the plan and a file
  const auto fs = NewMachine(server);
  EXPECT_FALSE(ConvertStore(*fs, "/new", scenario, keeper).ok());
  EXPECT_EQ(server.num_objects(), 1u);
  StoreKeeper someone;
  ASSERT_OK(ConvertStore(*fs, "/old", scenario, someone));
  const uint64_t num_theirs = server.num_objects() - 1;
  keeper.stop_after = SIZE_MAX;
  EXPECT_THAT(ConvertStore(*fs, "/new", scenario, keeper),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ExpectSame(*fs, "/old", scenario.path);
  EXPECT_EQ(server.num_objects(), num_theirs);
}

}  // namespace
}  // namespace dcp
