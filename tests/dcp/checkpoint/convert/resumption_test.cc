// SPDX-License-Identifier: Apache-2.0
// Conversions that are interrupted and continue: a machine that dies at each
// operation, stops that keep written files, and sources that change between the
// runs.
#include "dcp/checkpoint/convert/resumption.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::kModel;
using ::dcp::testing::kOther;
using ::dcp::testing::kPairRules;
using ::dcp::testing::kPlace;
using ::dcp::testing::MappedPair;
using ::dcp::testing::OptionsOf;
using ::dcp::testing::Place;
using ::dcp::testing::Prepare;
using ::dcp::testing::SaveModel;
using ::dcp::testing::Scenario;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Tree;

// Keeps the records.
struct Keeper {
  std::vector<std::string> records;
  bool keeps = true;
  std::stop_source stop;
  size_t stop_after = SIZE_MAX;  // records
  absl::Status failure;          // of the next append
  // The machine on which it runs, if the machine may die.
  const SimStorage* machine = nullptr;
  TransferStats stats;
  std::optional<ConvertPlan> plan;  // as on_plan had it
};

absl::StatusOr<ConvertPlan> Convert(FileSystem& fs, const Scenario& scenario,
                                    Keeper& keeper,
                                    absl::string_view src = kModel) {
  ConvertJournal journal;
  journal.before = keeper.records;
  journal.append = [&](std::string record) {
    if (!keeper.failure.ok()) return keeper.failure;
    if (keeper.machine != nullptr && keeper.machine->crashed()) {
      return absl::UnavailableError("the machine is dead");
    }
    keeper.records.push_back(std::move(record));
    if (keeper.records.size() >= keeper.stop_after) keeper.stop.request_stop();
    return absl::OkStatus();
  };
  journal.keeps = [&] { return keeper.keeps; };
  journal.step_bytes = 1;
  ConvertOptions options = OptionsOf(scenario);
  options.stop = keeper.stop.get_token();
  options.stats = &keeper.stats;
  options.on_plan = [&](const ConvertPlan& plan) { keeper.plan = plan; };
  options.journal = &journal;
  return ConvertCheckpoint(fs, src, scenario.path(), std::move(options));
}

// Puts another model in the place of the source.
void ReplaceModel(FileSystem& fs) {
  ASSERT_OK(fs.Rename(kModel, "/gone"));
  ASSERT_OK(fs.Rename(kOther, kModel));
}

// The files that an undisturbed run makes, as the last run of `kept`.
Tree Undisturbed(const Scenario& scenario, const Keeper& kept,
                 bool is_replaced = false) {
  SimStorage fs;
  Prepare(scenario, fs);
  if (is_replaced) ReplaceModel(fs);
  Keeper keeper;
  // The old checkpoint has another identity on this disk.
  auto run = ParseConvertRecords(kept.records);
  EXPECT_OK(run);
  WorkPlan& plan = (*run)->plan;
  if (plan.kind == Destination::Kind::kDcpDirectory) {
    plan.journaled->index_before = *IndexDigest(fs, scenario.path());
  }
  keeper.records = {WritePlanRecord(plan)};
  EXPECT_OK(Convert(fs, scenario, keeper));
  EXPECT_EQ(keeper.plan->num_files_kept, 0u);
  return Place(fs);
}

class Resume : public ::testing::TestWithParam<Scenario> {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }
};

TEST_P(Resume, AfterACrashAnywhereGivesTheSameBytes) {
  const Scenario& scenario = GetParam();
  uint64_t num_kept = 0;
  bool committed = false;  // and killed before anyone was told
  bool finished = false;
  for (uint64_t run = 0; !finished; ++run) {
    const uint64_t n = run / 4;  // with four seeds each
    SCOPED_TRACE(absl::StrCat("run ", run, ", crash after ", n));
    SimStorage fs({.seed = run + 1, .percent_short = 20});
    Prepare(scenario, fs);
    Keeper keeper;
    keeper.machine = &fs;
    fs.CrashAfter(n);
    const absl::Status status = Convert(fs, scenario, keeper).status();
    finished = status.ok() && !fs.crashed();
    fs.Reboot();
    // Some die twice.
    if (run % 3 == 0) {
      fs.CrashAfter(n / 2);
      Convert(fs, scenario, keeper).status().IgnoreError();
      fs.Reboot();
    }
    keeper.plan.reset();
    const auto plan = Convert(fs, scenario, keeper);
    ASSERT_OK(plan);
    if (keeper.plan.has_value()) {
      num_kept += keeper.plan->num_files_kept;
    } else {
      committed = true;
    }
    EXPECT_EQ(plan->num_tensors, 5u);
    ExpectSame(fs, Undisturbed(scenario, keeper));
    EXPECT_EQ(fs.num_open_files(), 0u);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_kept, 0u);
  EXPECT_TRUE(committed);
}

TEST_P(Resume, AfterAStopNeitherReadsNorWritesWhatIsThere) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(scenario, fs);
  Keeper first;
  first.stop_after = 2;  // the plan and a file
  EXPECT_THAT(Convert(fs, scenario, first).status(),
              StatusIs(absl::StatusCode::kCancelled));
  Keeper second;
  second.records = first.records;
  ASSERT_OK(Convert(fs, scenario, second));
  EXPECT_EQ(second.plan->num_files_kept, 1u);
  EXPECT_EQ(second.stats.bytes_written + first.stats.bytes_written,
            second.plan->bytes_to_write);
  ExpectSame(fs, Undisturbed(scenario, second));
}

TEST_P(Resume, LeavesNothingWhenItIsStoppedForGood) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(scenario, fs);
  const Tree before = Place(fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Place(fs) != before);
  keeper.keeps = false;
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kCancelled));
  ExpectSame(fs, before);
}

TEST_P(Resume, LeavesNothingWhenTheSourceIsGone) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(scenario, fs);
  const Tree before = Place(fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  ASSERT_OK(fs.Remove(JoinPath(kModel, ".metadata")));
  Keeper again;
  again.records = keeper.records;
  EXPECT_THAT(Convert(fs, scenario, again).status(),
              StatusIs(absl::StatusCode::kNotFound));
  ExpectSame(fs, before);
}

TEST_P(Resume, BeginsAgainWhenTheSourceHasChanged) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(scenario, fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  Keeper again;
  again.records = keeper.records;
  ReplaceModel(fs);
  ASSERT_OK(Convert(fs, scenario, again));
  EXPECT_EQ(again.plan->num_files_kept, 0u);
  ExpectSame(fs, Undisturbed(scenario, again, /*is_replaced=*/true));
}

TEST_P(Resume, FailsWithItsKeeper) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(scenario, fs);
  const Tree before = Place(fs);
  Keeper keeper;
  keeper.failure = absl::ResourceExhaustedError("the journal is full");
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  ExpectSame(fs, before);
}

std::vector<Scenario> Scenarios() {
  const std::vector<Scenario> kinds = {
      {.name = "Dcp", .dst = "dcp"},
      {.name = "Mesh", .dst = "dcp", .mesh = "shard=3"},
      {.name = "SafetensorsFile", .dst = "model.safetensors"},
      {.name = "TorchFile", .dst = "model.pt"},
      {.name = "SafetensorsDirectory",
       .dst = "model",
       .to = Format::kSafetensors,
       .max_shard_bytes = 100},
      {.name = "Accelerate",
       .dst = "folders",
       .mesh = "shard=2",
       .to_dialect = Dialect::kAccelerate}};
  std::vector<Scenario> scenarios;
  for (const bool overwrite : {false, true}) {
    for (Scenario scenario : kinds) {
      // It replaces nothing.
      if (overwrite && scenario.to_dialect.has_value()) continue;
      scenario.name += overwrite ? "Overwrite" : "Fresh";
      scenario.overwrite = overwrite;
      scenarios.push_back(scenario);
    }
  }
  return scenarios;
}

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::ValuesIn(Scenarios()),
                         [](const auto& tested) {
                           return std::string(tested.param.name);
                         });

TEST(Resumption, SparesACheckpointThatCameMeanwhile) {
  const Scenario scenario{.name = "", .dst = "dcp", .mesh = "shard=2"};
  SimStorage fs;
  Prepare(scenario, fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  Keeper someone;
  Scenario over = scenario;
  over.overwrite = true;
  ASSERT_OK(Convert(fs, over, someone, kOther));
  const Tree theirs = Place(fs);
  Keeper again;
  again.records = keeper.records;
  EXPECT_THAT(Convert(fs, scenario, again).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ExpectSame(fs, theirs);
}

// A run with other rules is other work.
TEST(Resumption, GoesOnOnlyWithTheSameRuleFile) {
  Scenario scenario{.name = "", .dst = "dcp", .mesh = "shard=2"};
  scenario.map = MappedPair::Map();
  for (const bool is_same : {true, false}) {
    SimStorage fs;
    MappedPair().Save(fs, kModel);
    ASSERT_OK(fs.MakeDirectory(kPlace));
    Keeper keeper;
    keeper.stop_after = 2;  // the plan and a file
    EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
    Scenario next = scenario;
    if (!is_same) next.map = MappedPair::Map(absl::StrCat(kPairRules, "\n"));
    Keeper again;
    again.records = keeper.records;
    ASSERT_OK(Convert(fs, next, again));
    EXPECT_EQ(again.plan->num_files_kept > 0, is_same);
  }
}

TEST(Resumption, GoesOnInPlace) {
  const Scenario scenario{
      .name = "", .dst = "dcp", .overwrite = true, .mesh = "shard=2"};
  SimStorage fs;
  Prepare(scenario, fs);
  ASSERT_OK(SaveModel(fs, "/expected", 2));
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper, scenario.path()).ok());
  Keeper again;
  again.records = keeper.records;
  ASSERT_OK(Convert(fs, scenario, again, scenario.path()));
  EXPECT_EQ(again.plan->num_files_kept, 1u);
  const auto report = DiffCheckpoints(fs, "/expected", scenario.path(), {});
  ASSERT_OK(report);
  EXPECT_EQ(report->findings.size(), 0u);
}

// Two files; casts of random bits find some that are beyond the range.
Scenario CastInShards() {
  return {.name = "",
          .dst = "model",
          .to = Format::kSafetensors,
          .max_shard_bytes = 100,
          .casts = {"float8_e4m3fn"}};
}

using Losses = std::vector<std::pair<std::string, uint64_t>>;

Losses PlanLosses(const ConvertPlan& plan) {
  Losses losses;
  for (const CastLoss& loss : plan.cast_losses) {
    EXPECT_EQ(loss.dtype, DType::kFloat8E4M3FN);
    losses.emplace_back(loss.name, loss.num_beyond);
  }
  return losses;
}

TEST(Resumption, TellsAfterItsCommitWhatItFound) {
  const Scenario scenario = CastInShards();
  SimStorage fs;
  Prepare(scenario, fs);
  Keeper keeper;
  const auto told = Convert(fs, scenario, keeper);
  ASSERT_OK(told);
  ASSERT_EQ(told->cast_losses.size(), 3u);
  // As if the process had been killed before anyone was told.
  const auto again = Convert(fs, scenario, keeper);
  ASSERT_OK(again);
  EXPECT_EQ(PlanLosses(*again), PlanLosses(*told));
  EXPECT_TRUE(again->check.checked);
  EXPECT_GT(again->check.num_crcs_checked, 0u);
  EXPECT_EQ(again->check.num_crcs_checked, told->check.num_crcs_checked);
  EXPECT_EQ(again->check.bytes_checked, told->check.bytes_checked);
}

TEST(Resumption, CountsCastsOfFilesThatAnEarlierRunWrote) {
  const Scenario scenario = CastInShards();
  SimStorage undisturbed;
  Prepare(scenario, undisturbed);
  Keeper nobody;
  const auto expected = Convert(undisturbed, scenario, nobody);
  ASSERT_OK(expected);
  SimStorage fs;
  Prepare(scenario, fs);
  Keeper first;
  first.stop_after = 2;  // the plan and a file
  EXPECT_FALSE(Convert(fs, scenario, first).ok());
  Keeper second;
  second.records = first.records;
  const auto plan = Convert(fs, scenario, second);
  ASSERT_OK(plan);
  EXPECT_EQ(second.plan->num_files_kept, 1u);
  EXPECT_EQ(PlanLosses(*plan), PlanLosses(*expected));
}

}  // namespace
}  // namespace dcp
