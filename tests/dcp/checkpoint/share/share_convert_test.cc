// SPDX-License-Identifier: Apache-2.0
// Workers that share a conversion: in any number, one after the other and at
// once, on a machine that dies at each operation, as processes that die there,
// and with another worker that does all of its work between two operations.
#include "dcp/checkpoint/share/share_convert.h"

#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::AllWork;
using ::dcp::testing::DataOf;
using ::dcp::testing::Expected;
using ::dcp::testing::ExpectSame;
using ::dcp::testing::HookedStorage;
using ::dcp::testing::kModel;
using ::dcp::testing::kOther;
using ::dcp::testing::OptionsOf;
using ::dcp::testing::Place;
using ::dcp::testing::Prepare;
using ::dcp::testing::ReadTree;
using ::dcp::testing::RemoveLocks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::Scenario;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Tree;
using ::dcp::testing::Work;
using ::testing::HasSubstr;

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
    EXPECT_EQ(DataOf(Place(fs)), DataOf(Place(plain)));
  }
  ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                       VerifyCheckpoint(fs, scenario.path(), {}));
  EXPECT_TRUE(verified.findings.empty());
}

// Tensors that only their place tells apart.
TEST(ShareConvertOfTwins, KeepsTensorsOfOneShapeApart) {
  for (const char* dst : {"twins.pt", "twins.safetensors", "twins"}) {
    SCOPED_TRACE(dst);
    SimStorage fs;
    ASSERT_OK(fs.MakeDirectory(testing::kPlace));
    testing::SampleState state;
    for (uint64_t i = 0; i < 4; ++i) {
      state.Add(testing::SampleTensor(absl::StrCat("t", i), DType::kFloat32,
                                      {50}, i + 1));
    }
    SingleProcessCoordinator coordinator;
    ASSERT_OK(Save(fs, kModel, state.state(), coordinator,
                   {.memory_bytes = kMinMemoryBytes}));
    const Scenario scenario{.name = "", .dst = dst, .piece_bytes = 200};
    AllWork(fs, scenario, 3);
    ASSERT_OK_AND_ASSIGN(
        const DiffReport diff,
        DiffCheckpoints(fs, kModel, scenario.path(), DiffOptions()));
    EXPECT_TRUE(diff.findings.empty());
  }
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

// Files of other writers would be removed or replaced by the workers, or remove
// their work.
TEST_P(ShareConvert, KeepsOtherWritersOut) {
  SimStorage fs;
  Prepare(GetParam(), fs);
  const std::string path = GetParam().path();
  ASSERT_OK(Work(fs, GetParam(), 0, 2));
  const Tree before = Place(fs);
  const auto is_refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("is the destination of workers"));
  ConvertOptions options = OptionsOf(GetParam());
  options.overwrite = true;
  EXPECT_THAT(ConvertCheckpoint(fs, kOther, path, std::move(options)),
              is_refused);
  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {7, 35}));
  if (NamesStateFile(path)) {
    ASSERT_OK_AND_ASSIGN(const auto file,
                         StateFile::Plan(fs, path, state.state()));
    EXPECT_THAT(file->Write({.overwrite = true}), is_refused);
  } else {
    SingleProcessCoordinator coordinator;
    EXPECT_THAT(Save(fs, path, state.state(), coordinator,
                     {.overwrite = true, .memory_bytes = kMinMemoryBytes}),
                is_refused);
  }
  ExpectSame(fs, before);
  AllWork(fs, GetParam(), 2);
  ExpectSame(fs, Expected(GetParam()));
}

// The data files in the directory.
std::multiset<uint64_t> DataIn(FileSystem& fs, const std::string& path) {
  Tree tree;
  ReadTree(fs, path, "", tree);
  return DataOf(tree);
}

// The parts of pieces in blocks that others write too are not among their
// direct transfers. This disk refuses direct transfers unless they are of whole
// blocks.
class ShareConvertDirect : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ShareConvertDirect, WritesWhatOneProcessWrites) {
  SimStorage fs({.alignment = GetParam()});
  SampleState state;
  for (int i = 0; i < 9; ++i) {
    state.Add(
        SampleTensor(absl::StrCat("w", i), DType::kFloat32, {60 + i, 101}));
  }
  state.Add(SampleTensor("small", DType::kInt8, {3}));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, kModel, state.state(), coordinator,
                 {.memory_bytes = kMinMemoryBytes}));
  const auto options = [] {
    ConvertOptions direct =
        OptionsOf({.name = "direct", .dst = "", .mesh = "shard=2"});
    direct.direct = DirectMode::kOn;
    return direct;
  };
  ASSERT_OK(ConvertCheckpoint(fs, kModel, "/plain", options()));
  const std::multiset<uint64_t> expected = DataIn(fs, "/plain");
  ASSERT_EQ(expected.size(), 2u);
  for (const uint64_t piece_bytes : {1'000u, 15'000u, 30'000u, 1'000'000u}) {
    SCOPED_TRACE(piece_bytes);
    const std::string dst = absl::StrCat("/shared", piece_bytes);
    for (uint32_t i = 0; i < 3; ++i) {
      ASSERT_OK(ConvertShare(
          fs, kModel, dst, options(),
          {.share = {.index = i, .count = 3}, .piece_bytes = piece_bytes}));
    }
    EXPECT_TRUE(DataIn(fs, dst) == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Alignments, ShareConvertDirect,
                         ::testing::Values(512, 4096, kMaxDirectAlignment));

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

}  // namespace
}  // namespace dcp
