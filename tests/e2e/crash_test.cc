// SPDX-License-Identifier: Apache-2.0
// A machine dies, or a disk fails, at every single operation in a save or a
// conversion. Afterwards the destination holds either the old or the new
// checkpoint, complete in both cases.
#include <cerrno>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Survival;

// The paths on the simulated disk. The two models are durable from the start.
constexpr absl::string_view kOldModel = "/old";
constexpr absl::string_view kNewModel = "/new";
constexpr absl::string_view kPlace = "/place";  // the destination's

enum class How : uint8_t { kSave, kConvert };

struct Scenario {
  std::string name;
  How how = How::kSave;
  std::string dst;  // in kPlace
  bool overwrite = false;
  // For a conversion:
  std::optional<Format> to = std::nullopt;
  std::string mesh = "";
  uint64_t max_shard_bytes = 0;

  std::string path() const { return absl::StrCat(kPlace, "/", dst); }
};

void PrintTo(const Scenario& scenario, std::ostream* os) {
  *os << scenario.name;
}

// `seed` distinguishes the old model from the new: other values, and one name
// less.
void Fill(SampleState& state, uint64_t seed) {
  state.Add(SampleTensor("a.weight", DType::kFloat32, {7, 5}, seed));
  state.Add(SampleTensor("b.weight", DType::kBFloat16, {40, 30}, seed));
  if (seed > 1) state.Add(SampleTensor("scalar", DType::kInt64, {}, seed));
}

absl::Status SaveModel(FileSystem& fs, absl::string_view path, uint64_t seed) {
  SampleState state;
  Fill(state, seed);
  SingleProcessCoordinator coordinator;
  return Save(fs, path, state.state(), coordinator,
              {.memory_bytes = kMinMemoryBytes});
}

absl::Status Convert(FileSystem& fs, absl::string_view src,
                     const Scenario& scenario, bool overwrite) {
  ConvertOptions options;
  options.to = scenario.to;
  options.max_shard_bytes = scenario.max_shard_bytes;
  options.overwrite = overwrite;
  options.num_lanes = 1;
  options.memory_bytes = kMinMemoryBytes;
  if (!scenario.mesh.empty()) options.mesh = *ParseMesh(scenario.mesh);
  return ConvertCheckpoint(fs, src, scenario.path(), std::move(options))
      .status();
}

// Puts the old (seed 1) or the new model (seed 2) at the destination.
absl::Status Put(FileSystem& fs, const Scenario& scenario, uint64_t seed,
                 bool overwrite) {
  if (scenario.how == How::kSave) return SaveModel(fs, scenario.path(), seed);
  return Convert(fs, seed == 1 ? kOldModel : kNewModel, scenario, overwrite);
}

void Prepare(SimStorage& fs, const Scenario& scenario) {
  ASSERT_OK(SaveModel(fs, kOldModel, 1));
  ASSERT_OK(SaveModel(fs, kNewModel, 2));
  ASSERT_OK(fs.MakeDirectory(kPlace));
  ASSERT_OK(fs.SyncDirectory("/"));
  if (scenario.overwrite) {
    ASSERT_OK(Put(fs, scenario, 1, false));
  }
}

absl::Status PutNew(FileSystem& fs, const Scenario& scenario) {
  return Put(fs, scenario, 2, scenario.overwrite);
}

// Lists the path of every file below `path`.
void ListTree(FileSystem& fs, const std::string& path,
              std::vector<std::string>& files) {
  const auto entries = fs.List(path);
  ASSERT_OK(entries);
  for (const DirectoryEntry& entry : *entries) {
    const std::string child = JoinPath(path, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      files.push_back(child + "/");
      ListTree(fs, child, files);
    } else {
      files.push_back(child);
    }
  }
}

std::vector<std::string> Tree(FileSystem& fs) {
  std::vector<std::string> files;
  ListTree(fs, std::string(kPlace), files);
  return files;
}

bool Equal(FileSystem& fs, absl::string_view a, absl::string_view b) {
  DiffOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto report = DiffCheckpoints(fs, a, b, std::move(options));
  EXPECT_OK(report);
  return report.ok() && report->findings.empty();
}

enum class Found : uint8_t { kNothing, kOld, kNew, kBroken };

// The destination's contents, which must be complete.
Found Inspect(FileSystem& fs, const Scenario& scenario) {
  const std::string path = scenario.path();
  VerifyOptions options;
  options.memory_bytes = kMinMemoryBytes;
  const auto report = VerifyCheckpoint(fs, path, std::move(options));
  if (absl::IsNotFound(report.status())) return Found::kNothing;
  EXPECT_OK(report);
  if (!report.ok()) return Found::kBroken;
  for (const VerifyFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.problem;
  }
  // The tensor count tells which model it should be.
  const bool is_new = report->num_tensors == 3;
  if (!Equal(fs, path, is_new ? kNewModel : kOldModel)) {
    ADD_FAILURE() << path << " is neither the old nor the new model";
    return Found::kBroken;
  }
  return is_new ? Found::kNew : Found::kOld;
}

// A second run completes in any case, and leaves nothing from the first.
void ExpectNextRunWorks(FileSystem& fs, const Scenario& scenario,
                        size_t num_files) {
  ASSERT_OK(Put(fs, scenario, 2, /*overwrite=*/true));
  EXPECT_EQ(Inspect(fs, scenario), Found::kNew);
  const std::vector<std::string> files = Tree(fs);
  EXPECT_EQ(files.size(), num_files) << ::testing::PrintToString(files);
}

class Crash : public ::testing::TestWithParam<Scenario> {
 protected:
  // Leftovers are logged, thousands of times.
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  Found before() const {
    return GetParam().overwrite ? Found::kOld : Found::kNothing;
  }
};

// How many operations and mutations a run takes, and how many files it leaves.
struct DryRun {
  uint64_t num_operations = 0;
  uint64_t num_mutations = 0;
  size_t num_files = 0;
};

DryRun Measure(const Scenario& scenario) {
  SimStorage fs;
  Prepare(fs, scenario);
  const uint64_t operations = fs.num_operations();
  const uint64_t mutations = fs.num_mutations();
  EXPECT_OK(PutNew(fs, scenario));
  DryRun dry{.num_operations = fs.num_operations() - operations,
             .num_mutations = fs.num_mutations() - mutations,
             .num_files = 0};
  EXPECT_EQ(Inspect(fs, scenario), Found::kNew);
  dry.num_files = Tree(fs).size();
  EXPECT_EQ(fs.num_open_files(), 0u);
  return dry;
}

// A run repeats short and interrupted transfers, and so makes more mutations
// than the dry run. With these the last crashes come after the commit.
constexpr uint64_t kMoreMutations = 4;

TEST_P(Crash, LeavesTheOldOrTheNewCheckpoint) {
  const Scenario& scenario = GetParam();
  const DryRun dry = Measure(scenario);
  ASSERT_GT(dry.num_mutations, 3u);
  bool saw_before = false;
  bool saw_new = false;
  for (const Survival survival : {Survival::kPrefix, Survival::kSubset}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      for (uint64_t n = 0; n <= dry.num_mutations + kMoreMutations; ++n) {
        SCOPED_TRACE(absl::StrCat("survival ", static_cast<int>(survival),
                                  " seed ", seed, " crash after ", n));
        SimStorage fs({.seed = seed * 1000 + n,
                       .percent_short = 20,
                       .percent_interrupted = 20,
                       .survival = survival});
        Prepare(fs, scenario);
        fs.CrashAfter(n);
        const absl::Status status = PutNew(fs, scenario);
        fs.Reboot();
        const Found found = Inspect(fs, scenario);
        if (status.ok()) {
          EXPECT_EQ(found, Found::kNew) << "what succeeded must last";
        } else {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
          EXPECT_TRUE(found == before() || found == Found::kNew);
        }
        saw_before = saw_before || found == before();
        saw_new = saw_new || (found == Found::kNew && !status.ok());
        ExpectNextRunWorks(fs, scenario, dry.num_files);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_TRUE(saw_before);
  EXPECT_TRUE(saw_new);  // a crash just after the commit
}

// Each operation fails once. The old files stay, and nothing is added. If only
// operations after the commit fail, the new checkpoint is there.
TEST_P(Crash, AFaultLeavesNoLitter) {
  const Scenario& scenario = GetParam();
  const DryRun dry = Measure(scenario);
  for (const int error : {EIO, ENOSPC}) {
    for (uint64_t n = 0; n < dry.num_operations; ++n) {
      SCOPED_TRACE(absl::StrCat("errno ", error, " at operation ", n));
      SimStorage fs;
      Prepare(fs, scenario);
      const std::vector<std::string> files = Tree(fs);
      fs.FailOperation(n, error);
      const absl::Status status = PutNew(fs, scenario);
      EXPECT_EQ(fs.num_open_files(), 0u);
      const Found found = Inspect(fs, scenario);
      if (found == before()) {
        EXPECT_EQ(Tree(fs), files);
        EXPECT_FALSE(status.ok());
        EXPECT_EQ(status.code(), error == EIO
                                     ? absl::StatusCode::kUnavailable
                                     : absl::StatusCode::kResourceExhausted)
            << status;
      } else {
        EXPECT_EQ(found, Found::kNew);
      }
      if (!status.ok() && scenario.how == How::kConvert) {
        // Only the source is read.
        const bool names_source =
            absl::StartsWith(status.message(), "read ") ||
            absl::StrContains(status.message(), kNewModel);
        EXPECT_EQ(StatusSide(status),
                  names_source ? ErrorSide::kSource : ErrorSide::kDestination)
            << status;
      }
      ExpectNextRunWorks(fs, scenario, dry.num_files);
      if (HasFailure()) return;
    }
  }
}

std::vector<Scenario> Scenarios() {
  const std::vector<Scenario> kinds = {
      {.name = "Save", .how = How::kSave, .dst = "dcp"},
      {.name = "Dcp", .how = How::kConvert, .dst = "dcp"},
      {.name = "Mesh", .how = How::kConvert, .dst = "dcp", .mesh = "shard=2"},
      {.name = "SafetensorsFile",
       .how = How::kConvert,
       .dst = "model.safetensors"},
      {.name = "TorchFile", .how = How::kConvert, .dst = "model.pt"},
      {.name = "SafetensorsDirectory",
       .how = How::kConvert,
       .dst = "model",
       .to = Format::kSafetensors,
       .max_shard_bytes = 2000}};
  std::vector<Scenario> scenarios;
  for (const bool overwrite : {false, true}) {
    for (Scenario scenario : kinds) {
      scenario.name += overwrite ? "Overwrite" : "Fresh";
      scenario.overwrite = overwrite;
      scenarios.push_back(scenario);
    }
  }
  return scenarios;
}

INSTANTIATE_TEST_SUITE_P(All, Crash, ::testing::ValuesIn(Scenarios()),
                         [](const auto& tested) {
                           return std::string(tested.param.name);
                         });

}  // namespace
}  // namespace dcp
