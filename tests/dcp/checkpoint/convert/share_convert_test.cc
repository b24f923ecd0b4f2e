// Workers that share a conversion: in any number, one after the other and at
// once, on a machine that dies at each operation, as processes that die there,
// and with another worker that does all of its work between two operations.
#include "dcp/checkpoint/convert/share_convert.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/work_status.h"
#include "dcp/checkpoint/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::HookedStorage;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::string_view kModel = "/model";
constexpr absl::string_view kOther = "/other";
constexpr absl::string_view kPlace = "/place";  // of the destination

absl::Status SaveModel(FileSystem& fs, absl::string_view path, uint64_t seed) {
  SampleState state;
  state.Add(SampleTensor("a.weight", DType::kFloat32, {7, 35}, seed));
  state.Add(SampleTensor("b.weight", DType::kBFloat16, {40, 30}, seed));
  state.Add(SampleTensor("c.weight", DType::kFloat32, {30, 9}, seed));
  state.Add(SampleTensor("d.bias", DType::kInt8, {13}, seed));
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
  int column = -1;  // the dimension that the mesh cuts, unless it is 0
  uint64_t piece_bytes = 700;

  std::string path() const { return absl::StrCat(kPlace, "/", dst); }
};

void PrintTo(const Scenario& scenario, std::ostream* os) {
  *os << scenario.name;
}

ConvertOptions OptionsOf(const Scenario& scenario) {
  ConvertOptions options;
  options.to = scenario.to;
  options.overwrite = scenario.overwrite;
  options.max_shard_bytes = scenario.max_shard_bytes;
  options.selection.casts = scenario.casts;
  options.memory_bytes = kMinMemoryBytes;
  options.num_lanes = 1;
  if (!scenario.mesh.empty()) {
    options.mesh = *ParseMesh(scenario.mesh);
  }
  if (scenario.column >= 0) {
    options.placements.push_back({.glob = "*.weight",
                                  .placements = *ParsePlacements(absl::StrCat(
                                      "S(", scenario.column, ")"))});
  }
  return options;
}

// A disk with the model, and with what the destination held before.
void Prepare(const Scenario& scenario, FileSystem& fs) {
  ASSERT_OK(SaveModel(fs, kModel, 1));
  ASSERT_OK(SaveModel(fs, kOther, 2));
  ASSERT_OK(fs.MakeDirectory(kPlace));
  if (scenario.overwrite) {
    ASSERT_OK(
        ConvertCheckpoint(fs, kOther, scenario.path(), OptionsOf(scenario)));
  }
  ASSERT_OK(fs.SyncDirectory(kPlace));
  ASSERT_OK(fs.SyncDirectory("/"));
}

absl::StatusOr<ShareResult> Work(FileSystem& fs, const Scenario& scenario,
                                 uint32_t index, uint32_t count) {
  return ConvertShare(fs, kModel, scenario.path(), OptionsOf(scenario),
                      {.share = {.index = index, .count = count},
                       .piece_bytes = scenario.piece_bytes});
}

void AllWork(FileSystem& fs, const Scenario& scenario, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_OK_AND_ASSIGN(const ShareResult result,
                         Work(fs, scenario, i, count));
    if (i + 1 == count) EXPECT_TRUE(result.is_complete);
  }
}

using Tree = std::map<std::string, std::string>;

void ReadTree(FileSystem& fs, const std::string& directory,
              const std::string& prefix, Tree& tree) {
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> entries,
                       fs.List(directory));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = JoinPath(directory, entry.name);
    const std::string name = absl::StrCat(prefix, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      tree[name] = "directory";
      ReadTree(fs, path, absl::StrCat(name, "/"), tree);
    } else {
      ASSERT_OK_AND_ASSIGN(tree[name], ReadFile(fs, path, UINT64_MAX, false));
    }
  }
}

// Everything at the destination, apart from the mark of who made it.
Tree Place(FileSystem& fs) {
  Tree tree;
  ReadTree(fs, std::string(kPlace), "", tree);
  std::erase_if(tree, [](const auto& file) {
    return file.first.starts_with('.') && absl::EndsWith(file.first, ".done") &&
           absl::StartsWith(file.second, "tessera-done 1 ");
  });
  return tree;
}

// A machine that dies while a lock ends leaves the lock file, which nobody
// holds.
void RemoveLocks(FileSystem& fs, const Scenario& scenario) {
  for (const std::string& path :
       {scenario.path() + "/.writer.lock",
        absl::StrCat(kPlace, "/.", scenario.dst, ".lock")}) {
    fs.Remove(path).IgnoreError();
  }
}

// What one worker makes of the scenario.
Tree Expected(const Scenario& scenario) {
  SimStorage fs;
  Prepare(scenario, fs);
  AllWork(fs, scenario, 1);
  return Place(fs);
}

void ExpectSame(FileSystem& fs, const Tree& expected) {
  const Tree found = Place(fs);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : found) names.push_back(name);
  std::vector<std::string> expected_names;
  for (const auto& [name, bytes] : expected) expected_names.push_back(name);
  ASSERT_EQ(names, expected_names);
  for (const auto& [name, bytes] : expected) {
    EXPECT_TRUE(found.at(name) == bytes) << name;
  }
}

class ShareConvert : public ::testing::TestWithParam<Scenario> {};

TEST_P(ShareConvert, WritesWhatOneProcessWrites) {
  const Scenario& scenario = GetParam();
  SimStorage plain;
  Prepare(scenario, plain);
  ASSERT_OK(
      ConvertCheckpoint(plain, kModel, scenario.path(), OptionsOf(scenario)));
  SimStorage fs;
  Prepare(scenario, fs);
  AllWork(fs, scenario, 1);
  const bool is_dcp = fs.Stat(scenario.path() + "/.metadata").ok();
  if (!is_dcp) {
    ExpectSame(fs, Place(plain));
  } else {
    // The same data files under other names.
    std::multimap<std::string, int> expected;
    std::multimap<std::string, int> found;
    for (const auto& [name, bytes] : Place(plain)) {
      if (absl::EndsWith(name, ".distcp")) expected.emplace(bytes, 0);
    }
    for (const auto& [name, bytes] : Place(fs)) {
      if (absl::EndsWith(name, ".distcp")) found.emplace(bytes, 0);
    }
    EXPECT_TRUE(found == expected);
  }
  ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                       VerifyCheckpoint(fs, scenario.path(), {}));
  EXPECT_TRUE(verified.findings.empty());
}

TEST_P(ShareConvert, WritesTheSameForAnyNumberOfWorkers) {
  const Tree expected = Expected(GetParam());
  for (const uint32_t count : {2u, 3u, 7u, 40u}) {
    SCOPED_TRACE(count);
    SimStorage fs;
    Prepare(GetParam(), fs);
    AllWork(fs, GetParam(), count);
    ExpectSame(fs, expected);
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
}

TEST_P(ShareConvert, WorkersRunAtOnce) {
  const Tree expected = Expected(GetParam());
  for (int round = 0; round < 5; ++round) {
    SimStorage fs({.seed = static_cast<uint64_t>(round) + 1,
                   .percent_short = 10,
                   .percent_interrupted = 10});
    Prepare(GetParam(), fs);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 6; ++i) {
      // Each share twice.
      threads.emplace_back([&, i] {
        const absl::StatusOr<ShareResult> result =
            Work(fs, GetParam(), i % 3, 3);
        EXPECT_OK(result.status());
      });
    }
    for (std::thread& thread : threads) thread.join();
    // A worker that ends while another has the lock leaves it to that one.
    ExpectSame(fs, expected);
  }
}

TEST_P(ShareConvert, AWorkerThatComesLateFindsItsWorkDone) {
  SimStorage fs;
  Prepare(GetParam(), fs);
  AllWork(fs, GetParam(), 2);
  const Tree before = Place(fs);
  const uint64_t num_mutations = fs.num_mutations();
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const ShareResult result, Work(fs, GetParam(), i, 3));
    EXPECT_TRUE(result.is_complete);
    EXPECT_FALSE(result.has_committed);
    EXPECT_EQ(result.num_written, 0u);
  }
  EXPECT_EQ(fs.num_mutations(), num_mutations);
  ExpectSame(fs, before);
}

class ShareConvertFaults : public ::testing::TestWithParam<Scenario> {};

// The machine dies at each mutation; the workers that come next are more.
TEST_P(ShareConvertFaults, SurvivesTheDeathOfTheMachine) {
  const Tree expected = Expected(GetParam());
  bool crashed = true;
  for (uint64_t moment = 0; crashed; ++moment) {
    SCOPED_TRACE(moment);
    SimStorage fs({.seed = moment + 1});
    Prepare(GetParam(), fs);
    fs.CrashAfter(moment);
    for (uint32_t i = 0; i < 2; ++i) {
      if (!Work(fs, GetParam(), i, 2).ok()) break;
    }
    crashed = fs.crashed();
    fs.Reboot();
    AllWork(fs, GetParam(), 3);
    RemoveLocks(fs, GetParam());
    ExpectSame(fs, expected);
    if (HasFailure()) return;
  }
}

// A worker dies before each of its operations, and its successors are fewer.
TEST_P(ShareConvertFaults, SurvivesTheDeathOfAWorker) {
  const Tree expected = Expected(GetParam());
  bool died = true;
  for (int moment = 0; died; ++moment) {
    SCOPED_TRACE(moment);
    SimStorage disk;
    Prepare(GetParam(), disk);
    died = false;
    int num_left = moment;
    HookedStorage fs(disk, [&] {
      if (num_left-- > 0) return absl::OkStatus();
      died = true;
      return absl::UnavailableError("dead");
    });
    ASSERT_OK(Work(disk, GetParam(), 0, 2));
    if (died = false, !Work(fs, GetParam(), 1, 2).ok()) EXPECT_TRUE(died);
    AllWork(disk, GetParam(), 1);
    ExpectSame(disk, expected);
    if (HasFailure()) return;
  }
}

// Between two operations of the last worker, another one does the same and
// ends, with all that belongs to it.
TEST_P(ShareConvertFaults, SeveralWorkersEndTheWorkAtOnce) {
  const Tree expected = Expected(GetParam());
  bool met = true;
  for (int moment = 0; met; ++moment) {
    SCOPED_TRACE(moment);
    SimStorage disk;
    Prepare(GetParam(), disk);
    ASSERT_OK(Work(disk, GetParam(), 0, 2));
    met = false;
    int num_left = moment;
    HookedStorage fs(disk, [&] {
      if (num_left-- == 0) {
        met = true;
        EXPECT_OK(Work(disk, GetParam(), 1, 2));
      }
      return absl::OkStatus();
    });
    EXPECT_OK(Work(fs, GetParam(), 1, 2));
    ExpectSame(disk, expected);
    AllWork(disk, GetParam(), 1);
    ExpectSame(disk, expected);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Destinations, ShareConvert,
    ::testing::Values(
        Scenario{.name = "dcp", .dst = "out", .mesh = "shard=3"},
        Scenario{.name = "dcp_over_dcp",
                 .dst = "out",
                 .overwrite = true,
                 .mesh = "shard=3",
                 .casts = {"a*=bf16"}},
        Scenario{
            .name = "columns", .dst = "out", .mesh = "shard=4", .column = 1},
        Scenario{.name = "torch", .dst = "model.pt"},
        Scenario{
            .name = "torch_over_torch", .dst = "model.pt", .overwrite = true},
        Scenario{.name = "safetensors", .dst = "model.safetensors"},
        Scenario{.name = "shards",
                 .dst = "hf",
                 .to = Format::kSafetensors,
                 .max_shard_bytes = 3000},
        Scenario{.name = "shards_over_shards",
                 .dst = "hf",
                 .overwrite = true,
                 .to = Format::kSafetensors,
                 .max_shard_bytes = 3000}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Destinations, ShareConvertFaults,
                         ::testing::Values(Scenario{.name = "dcp",
                                                    .dst = "out",
                                                    .mesh = "shard=2",
                                                    .piece_bytes = 2500},
                                           Scenario{.name = "dcp_over_dcp",
                                                    .dst = "out",
                                                    .overwrite = true,
                                                    .piece_bytes = 2500},
                                           Scenario{.name = "torch_over_torch",
                                                    .dst = "model.pt",
                                                    .overwrite = true},
                                           Scenario{
                                               .name = "shards_over_shards",
                                               .dst = "hf",
                                               .overwrite = true,
                                               .to = Format::kSafetensors,
                                               .max_shard_bytes = 3000,
                                               .piece_bytes = 2500}),
                         [](const auto& test) { return test.param.name; });

const Scenario& Simple() {
  static const auto* const scenario =
      new Scenario{.name = "dcp", .dst = "out", .mesh = "shard=3"};
  return *scenario;
}

TEST(ShareConvertRefusals, WorkersWithAnotherPlanAreTold) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK(Work(fs, Simple(), 0, 2));
  Scenario other = Simple();
  other.casts = {"a*=bf16"};
  EXPECT_THAT(Work(fs, other, 1, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("belongs to workers with another plan")));
  AllWork(fs, Simple(), 2);
  EXPECT_THAT(Work(fs, other, 1, 2),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/out")));
}

TEST(ShareConvertRefusals, AnotherCheckpointIsNotReplacedWithoutBeingAsked) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK(SaveModel(fs, Simple().path(), 3));
  EXPECT_THAT(Work(fs, Simple(), 0, 2),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/out")));
}

TEST(ShareConvertRefusals, FilesThatSomebodyRemovedAreWrittenAgain) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK(Work(fs, Simple(), 0, 2));
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> entries,
                       fs.List(Simple().path()));
  for (const DirectoryEntry& entry : entries) {
    if (entry.kind == FileKind::kFile) {
      ASSERT_OK(fs.Remove(JoinPath(Simple().path(), entry.name)));
      break;
    }
  }
  EXPECT_THAT(Work(fs, Simple(), 1, 2),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("run again")));
  AllWork(fs, Simple(), 2);
  ExpectSame(fs, Expected(Simple()));
}

TEST(ShareConvertRefusals, DamageIsNotRecorded) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> model,
                       Checkpoint::Open(fs, kModel, {}));
  ASSERT_OK(model->LocateAll());
  const ChunkLocation& last = model->entries()[4].tensor()->locations[0];
  const std::string path = model->files().PathOf(last.item.file);
  ASSERT_OK_AND_ASSIGN(std::string bytes,
                       ReadFile(fs, path, UINT64_MAX, false));
  bytes[last.payload_offset] ^= 1;
  ASSERT_OK(fs.Remove(path));
  ASSERT_OK(WriteFile(fs, path, bytes));
  EXPECT_THAT(Work(fs, Simple(), 0, 1), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK_AND_ASSIGN(const std::optional<WorkStatus> status,
                       FindWork(fs, Simple().path()));
  ASSERT_TRUE(status.has_value());
  EXPECT_LT(status->done.size(), status->num_pieces);
}

TEST(ShareConvertRefusals, AFullDiskIsNamedAndTheRestIsKept) {
  SimStorage fs({.capacity_bytes = 400000});
  Prepare(Simple(), fs);
  ASSERT_OK_AND_ASSIGN(const uint64_t free, fs.FreeBytes("/"));
  ASSERT_OK(WriteFile(fs, "/filler", std::string(free - 9000, 'x')));
  absl::Status status;
  for (uint32_t i = 0; i < 3; ++i) {
    status.Update(Work(fs, Simple(), i, 3).status());
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK(fs.Remove("/filler"));
  AllWork(fs, Simple(), 3);
  ExpectSame(fs, Expected(Simple()));
}

TEST(ShareConvertRefusals, ThereAreNoOtherShares) {
  SimStorage fs;
  Prepare(Simple(), fs);
  EXPECT_THAT(Work(fs, Simple(), 2, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no share 2 of 2")));
  ConvertOptions options = OptionsOf(Simple());
  options.to_dialect = Dialect::kAccelerate;
  EXPECT_THAT(
      ConvertShare(fs, kModel, Simple().path(), std::move(options), {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("accelerate")));
}

}  // namespace
}  // namespace dcp
