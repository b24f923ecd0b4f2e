// SPDX-License-Identifier: Apache-2.0
// Conversions that are interrupted and continue: a machine that dies at each
// operation, stops that keep what is written, and sources that change between
// the runs.
#include "dcp/checkpoint/convert/resumption.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::kPairRules;
using ::dcp::testing::MappedPair;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;

constexpr absl::string_view kModel = "/model";
constexpr absl::string_view kOther = "/other";
constexpr absl::string_view kPlace = "/place";  // of the destination

absl::Status SaveModel(FileSystem& fs, absl::string_view path, uint64_t seed) {
  SampleState state;
  state.Add(SampleTensor("a.weight", DType::kFloat32, {7, 5}, seed));
  state.Add(SampleTensor("b.weight", DType::kBFloat16, {40, 30}, seed));
  state.Add(SampleTensor("scalar", DType::kInt64, {}, seed));
  SingleProcessCoordinator coordinator;
  return Save(fs, path, state.state(), coordinator,
              {.memory_bytes = kMinMemoryBytes});
}

struct Scenario {
  std::string name;
  std::string dst;  // in kPlace
  bool overwrite = false;
  std::optional<Format> to = std::nullopt;
  std::string mesh = "";
  uint64_t max_shard_bytes = 0;
  std::vector<std::string> casts = {};
  std::optional<Dialect> to_dialect = std::nullopt;
  std::shared_ptr<const MapSpec> map = nullptr;

  std::string path() const { return absl::StrCat(kPlace, "/", dst); }
};

void PrintTo(const Scenario& scenario, std::ostream* os) {
  *os << scenario.name;
}

// Keeps the records.
struct Keeper {
  std::vector<std::string> records;
  std::string source_version = "1";
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
  journal.source_version = keeper.source_version;
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
  ConvertOptions options;
  options.open.map = scenario.map;
  options.to = scenario.to;
  options.to_dialect = scenario.to_dialect;
  options.max_shard_bytes = scenario.max_shard_bytes;
  options.selection.casts = scenario.casts;
  options.overwrite = scenario.overwrite;
  options.num_lanes = 1;
  options.memory_bytes = kMinMemoryBytes;
  options.stop = keeper.stop.get_token();
  options.stats = &keeper.stats;
  options.on_plan = [&](const ConvertPlan& plan) { keeper.plan = plan; };
  options.journal = &journal;
  if (!scenario.mesh.empty()) options.mesh = *ParseMesh(scenario.mesh);
  return ConvertCheckpoint(fs, src, scenario.path(), std::move(options));
}

void Prepare(FileSystem& fs, const Scenario& scenario) {
  ASSERT_OK(SaveModel(fs, kModel, 1));
  ASSERT_OK(SaveModel(fs, kOther, 2));
  ASSERT_OK(fs.MakeDirectory(kPlace));
  ASSERT_OK(fs.SyncDirectory("/"));
  if (!scenario.overwrite) return;
  Keeper keeper;
  ASSERT_OK(Convert(fs, scenario, keeper, kOther));
}

void ReadTree(FileSystem& fs, const std::string& path,
              std::map<std::string, std::string>& files) {
  const auto entries = fs.List(path);
  ASSERT_OK(entries);
  for (const DirectoryEntry& entry : *entries) {
    const std::string child = JoinPath(path, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      files[child] = "";
      ReadTree(fs, child, files);
    } else {
      const std::string bytes = *ReadFile(fs, child, 1 << 20, false);
      files[child] = absl::StrCat(Xxh3Digest(AsBytes(bytes)));
    }
  }
}

// The paths below kPlace and digests of their bytes.
std::map<std::string, std::string> Tree(FileSystem& fs) {
  std::map<std::string, std::string> files;
  ReadTree(fs, std::string(kPlace), files);
  return files;
}

// What an undisturbed run makes, as the last run of `kept`.
std::map<std::string, std::string> Undisturbed(const Scenario& scenario,
                                               const Keeper& kept) {
  SimStorage fs;
  Prepare(fs, scenario);
  Keeper keeper;
  keeper.source_version = kept.source_version;
  // The old checkpoint has another identity on this disk.
  auto run = ParseConvertRecords(kept.records);
  EXPECT_OK(run);
  if ((*run)->kind == Destination::Kind::kDcpDirectory) {
    (*run)->index_before = *IndexDigest(fs, scenario.path());
  }
  keeper.records = {PlanRecord(**run)};
  EXPECT_OK(Convert(fs, scenario, keeper));
  EXPECT_EQ(keeper.plan->num_files_kept, 0u);
  return Tree(fs);
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
    Prepare(fs, scenario);
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
    EXPECT_EQ(plan->num_tensors, 3u);
    EXPECT_EQ(Tree(fs), Undisturbed(scenario, keeper));
    EXPECT_EQ(fs.num_open_files(), 0u);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_kept, 0u);
  EXPECT_TRUE(committed);
}

TEST_P(Resume, AfterAStopNeitherReadsNorWritesWhatIsThere) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(fs, scenario);
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
  EXPECT_EQ(Tree(fs), Undisturbed(scenario, second));
}

TEST_P(Resume, LeavesNothingWhenItIsStoppedForGood) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(fs, scenario);
  const auto before = Tree(fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_NE(Tree(fs), before);
  keeper.keeps = false;
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(Tree(fs), before);
}

TEST_P(Resume, LeavesNothingWhenTheSourceIsGone) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(fs, scenario);
  const auto before = Tree(fs);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  ASSERT_OK(fs.Remove(JoinPath(kModel, ".metadata")));
  Keeper again;
  again.records = keeper.records;
  EXPECT_THAT(Convert(fs, scenario, again).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Tree(fs), before);
}

TEST_P(Resume, BeginsAnewWhenTheSourceHasChanged) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(fs, scenario);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  Keeper again;
  again.records = keeper.records;
  again.source_version = "2";
  ASSERT_OK(Convert(fs, scenario, again));
  EXPECT_EQ(again.plan->num_files_kept, 0u);
  EXPECT_EQ(Tree(fs), Undisturbed(scenario, again));
}

TEST_P(Resume, FailsWithItsKeeper) {
  const Scenario& scenario = GetParam();
  SimStorage fs;
  Prepare(fs, scenario);
  const auto before = Tree(fs);
  Keeper keeper;
  keeper.failure = absl::ResourceExhaustedError("the journal is full");
  EXPECT_THAT(Convert(fs, scenario, keeper).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Tree(fs), before);
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
  Prepare(fs, scenario);
  Keeper keeper;
  keeper.stop_after = 2;
  EXPECT_FALSE(Convert(fs, scenario, keeper).ok());
  Keeper someone;
  Scenario over = scenario;
  over.overwrite = true;
  ASSERT_OK(Convert(fs, over, someone, kOther));
  const auto theirs = Tree(fs);
  Keeper again;
  again.records = keeper.records;
  EXPECT_THAT(Convert(fs, scenario, again).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Tree(fs), theirs);
}

// The rules of a run are part of what it does.
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
  Prepare(fs, scenario);
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
  Prepare(fs, scenario);
  Keeper keeper;
  const auto told = Convert(fs, scenario, keeper);
  ASSERT_OK(told);
  ASSERT_EQ(told->cast_losses.size(), 2u);
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
  Prepare(undisturbed, scenario);
  Keeper nobody;
  const auto expected = Convert(undisturbed, scenario, nobody);
  ASSERT_OK(expected);
  SimStorage fs;
  Prepare(fs, scenario);
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
