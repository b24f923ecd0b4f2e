// SPDX-License-Identifier: Apache-2.0
// Workers that share a verify: in any number, of damaged checkpoints of each
// format, on a machine that dies at each operation, as processes that die
// there, with another worker that does all of its work between two operations,
// and with records in an object store. Together they report the same findings
// as one process.
#include "dcp/checkpoint/share/share_verify.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kFailedPrecondition;
using ::dcp::testing::HookedStorage;
using ::dcp::testing::kModel;
using ::dcp::testing::OptionsOf;
using ::dcp::testing::Place;
using ::dcp::testing::Prepare;
using ::dcp::testing::Scenario;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Tree;
using ::testing::HasSubstr;

constexpr absl::string_view kRecords = "/records";

VerifyOptions Options(double sample_percent = 100) {
  VerifyOptions options;
  options.sample_percent = sample_percent;
  options.memory_bytes = kMinMemoryBytes;
  return options;
}

absl::StatusOr<ShareVerifyResult> Check(FileSystem& fs,
                                        const Scenario& scenario,
                                        uint32_t index, uint32_t count,
                                        absl::string_view records = kRecords,
                                        VerifyOptions options = Options()) {
  return ShareVerify(fs, scenario.path(), std::move(options),
                     {.share = {.index = index, .count = count},
                      .piece_bytes = scenario.piece_bytes,
                      .records = std::string(records)});
}

// The findings of all workers together, one after the other.
VerifyReport CheckAll(FileSystem& fs, const Scenario& scenario, uint32_t count,
                      absl::string_view records = kRecords,
                      double sample_percent = 100) {
  VerifyReport report;
  for (uint32_t i = 0; i < count; ++i) {
    const absl::StatusOr<ShareVerifyResult> result =
        Check(fs, scenario, i, count, records, Options(sample_percent));
    EXPECT_OK(result.status());
    if (!result.ok()) return report;
    EXPECT_TRUE(result->is_complete || i + 1 < count);
    report = result->report;
  }
  return report;
}

VerifyReport Plain(FileSystem& fs, const Scenario& scenario,
                   double sample_percent = 100) {
  absl::StatusOr<VerifyReport> report =
      VerifyCheckpoint(fs, scenario.path(), Options(sample_percent));
  EXPECT_OK(report.status());
  return *std::move(report);
}

// Writes the checkpoint and damages `num_places` of its bytes; if `cut`, also
// shortens a data file.
void Make(FileSystem& fs, const Scenario& scenario, uint64_t seed,
          int num_places, bool cut = false) {
  Prepare(scenario, fs);
  ASSERT_OK(
      ConvertCheckpoint(fs, kModel, scenario.path(), OptionsOf(scenario)));
  std::vector<std::string> names;
  const Tree tree = Place(fs);
  for (const auto& [name, bytes] : tree) {
    if (absl::EndsWith(name, ".distcp") || absl::EndsWith(name, ".pt") ||
        absl::EndsWith(name, ".safetensors")) {
      names.push_back(name);
    }
  }
  ASSERT_FALSE(names.empty());
  std::mt19937_64 random(seed);
  for (int i = 0; i < num_places; ++i) {
    const std::string path =
        JoinPath(testing::kPlace, names[random() % names.size()]);
    ASSERT_OK_AND_ASSIGN(std::string bytes,
                         ReadFile(fs, path, UINT64_MAX, false));
    // Neither the head of a safetensors file nor the directory of a .pt file,
    // without which nothing can be opened.
    const size_t place = bytes.size() / 3 + random() % (bytes.size() / 3);
    bytes[place] = static_cast<char>(bytes[place] ^ 0x40);
    if (cut && i == 0) bytes.resize(bytes.size() - 300);
    ASSERT_OK(fs.Remove(path));
    ASSERT_OK(WriteFile(fs, path, bytes));
    ASSERT_OK(fs.SyncDirectory(ParentDirectory(path)));
  }
}

class ShareVerifyTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(ShareVerifyTest, FindsWhatOneProcessFinds) {
  bool found_any = false;
  for (const int num_places : {0, 3, 5}) {
    SCOPED_TRACE(num_places);
    SimStorage fs;
    Make(fs, GetParam(), 7, num_places);
    const double sample = num_places == 3 ? 60 : 100;
    const VerifyReport plain = Plain(fs, GetParam(), sample);
    found_any = found_any || !plain.findings.empty();
    for (const uint32_t count : {1u, 3u, 8u}) {
      SCOPED_TRACE(count);
      const std::string records = absl::StrCat(kRecords, count);
      EXPECT_EQ(CheckAll(fs, GetParam(), count, records, sample), plain);
    }
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
  EXPECT_TRUE(found_any);
}

TEST_P(ShareVerifyTest, PiecesAreCheckedOnce) {
  SimStorage fs;
  Make(fs, GetParam(), 1, 0);
  uint32_t num_checked = 0;
  uint64_t num_bytes = 0;
  uint32_t num_pieces = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(const ShareVerifyResult result,
                         Check(fs, GetParam(), i, 4));
    num_checked += result.num_checked;
    num_pieces = result.num_pieces;
    if (!result.is_complete) num_bytes += result.report.bytes_checked;
  }
  EXPECT_EQ(num_checked, num_pieces);
  EXPECT_GT(num_pieces, 2u);
  EXPECT_LT(num_bytes, Plain(fs, GetParam()).bytes_checked);
  // Those that come late, in another number, have nothing to do.
  ASSERT_OK_AND_ASSIGN(const ShareVerifyResult late,
                       Check(fs, GetParam(), 1, 3));
  EXPECT_EQ(late.num_checked, 0u);
  EXPECT_TRUE(late.is_complete);
  EXPECT_EQ(late.report, Plain(fs, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Sources, ShareVerifyTest,
    ::testing::Values(
        Scenario{.name = "dcp", .dst = "out", .mesh = "shard=3"},
        Scenario{
            .name = "columns", .dst = "out", .mesh = "shard=4", .column = 1},
        Scenario{.name = "torch", .dst = "model.pt"},
        Scenario{.name = "safetensors", .dst = "model.safetensors"},
        Scenario{.name = "shards",
                 .dst = "hf",
                 .to = Format::kSafetensors,
                 .max_shard_bytes = 3000}),
    [](const auto& test) { return test.param.name; });

const Scenario& Dcp() {
  static const Scenario kDcp = {
      .name = "dcp", .dst = "out", .mesh = "shard=2", .piece_bytes = 2500};
  return kDcp;
}

TEST(ShareVerify, AShortenedFileIsFoundByAll) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SimStorage fs;
    Make(fs, Dcp(), seed, 2, /*cut=*/true);
    const VerifyReport plain = Plain(fs, Dcp());
    EXPECT_FALSE(plain.findings.empty());
    EXPECT_EQ(CheckAll(fs, Dcp(), 3), plain);
  }
}

TEST(ShareVerify, AnotherSourceOrOtherOptionsAreRefused) {
  SimStorage fs;
  Make(fs, Dcp(), 1, 0);
  ASSERT_OK(Check(fs, Dcp(), 0, 2).status());
  const auto refused = StatusIs(kFailedPrecondition,
                                HasSubstr("belongs to workers with another"));
  EXPECT_THAT(Check(fs, Dcp(), 1, 2, kRecords, Options(50)), refused);
  Scenario other = Dcp();
  other.piece_bytes = 1000;
  EXPECT_THAT(Check(fs, other, 1, 2), refused);
  EXPECT_THAT(ShareVerify(fs, kModel, Options(),
                          {.share = {},
                           .piece_bytes = Dcp().piece_bytes,
                           .records = std::string(kRecords)}),
              refused);
  EXPECT_THAT(Check(fs, Dcp(), 0, 1, "/missing/records"),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(ShareVerify, TheReportStaysUntilItIsDiscarded) {
  SimStorage fs;
  Make(fs, Dcp(), 3, 6);
  const Tree before = Place(fs);
  ASSERT_OK_AND_ASSIGN(const ShareVerifyResult first, Check(fs, Dcp(), 0, 2));
  ASSERT_OK_AND_ASSIGN(std::optional<WorkStatus> status,
                       FindWork(fs, kRecords));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->id, first.id);
  EXPECT_FALSE(status->is_complete());
  EXPECT_EQ(status->report, first.report);
  ASSERT_OK(Check(fs, Dcp(), 1, 2).status());
  ASSERT_OK_AND_ASSIGN(status, FindWork(fs, kRecords));
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(status->is_complete());
  const VerifyReport plain = Plain(fs, Dcp());
  EXPECT_EQ(status->report, plain);
  // Both workers found something.
  EXPECT_FALSE(first.report.findings.empty());
  EXPECT_LT(first.report.findings.size(), plain.findings.size());
  EXPECT_THAT(DiscardWork(fs, kRecords), testing::IsOkAndHolds(1u));
  EXPECT_EQ(*FindWork(fs, kRecords), std::nullopt);
  // Also if the records are in the checkpoint itself.
  CheckAll(fs, Dcp(), 2, Dcp().path());
  EXPECT_THAT(DiscardWork(fs, Dcp().path()), testing::IsOkAndHolds(1u));
  EXPECT_EQ(Place(fs), before);
}

// The machine dies at each mutation; the workers that come next are more.
TEST(ShareVerify, SurvivesTheDeathOfTheMachine) {
  bool crashed = true;
  for (uint64_t moment = 0; crashed; ++moment) {
    SCOPED_TRACE(moment);
    SimStorage fs({.seed = moment + 1});
    Make(fs, Dcp(), 3, 4);
    const VerifyReport plain = Plain(fs, Dcp());
    fs.CrashAfter(moment);
    for (uint32_t i = 0; i < 2; ++i) {
      if (!Check(fs, Dcp(), i, 2).ok()) break;
    }
    crashed = fs.crashed();
    fs.Reboot();
    EXPECT_EQ(CheckAll(fs, Dcp(), 3), plain);
    if (HasFailure()) return;
  }
}

// A worker dies before each of its operations, and its successors are fewer.
TEST(ShareVerify, SurvivesTheDeathOfAWorker) {
  SimStorage disk;
  Make(disk, Dcp(), 3, 4);
  const VerifyReport plain = Plain(disk, Dcp());
  bool died = true;
  for (int moment = 0; died; ++moment) {
    SCOPED_TRACE(moment);
    const std::string records = absl::StrCat(kRecords, moment);
    died = false;
    int num_left = moment;
    HookedStorage fs(disk, [&] {
      if (num_left-- > 0) return absl::OkStatus();
      died = true;
      return absl::UnavailableError("dead");
    });
    ASSERT_OK(Check(disk, Dcp(), 0, 2, records).status());
    const absl::StatusOr<ShareVerifyResult> result =
        Check(fs, Dcp(), 1, 2, records);
    if (result.ok()) EXPECT_EQ(result->report, plain);
    EXPECT_TRUE(result.ok() || died);
    EXPECT_EQ(CheckAll(disk, Dcp(), 1, records), plain);
    if (HasFailure()) return;
  }
}

// Between two operations of the last worker, another one does the same.
TEST(ShareVerify, SeveralWorkersEndTheWorkAtOnce) {
  SimStorage disk;
  Make(disk, Dcp(), 3, 4);
  const VerifyReport plain = Plain(disk, Dcp());
  bool met = true;
  for (int moment = 0; met; ++moment) {
    SCOPED_TRACE(moment);
    const std::string records = absl::StrCat(kRecords, moment);
    ASSERT_OK(Check(disk, Dcp(), 0, 2, records).status());
    met = false;
    int num_left = moment;
    HookedStorage fs(disk, [&] {
      if (num_left-- == 0) {
        met = true;
        EXPECT_OK(Check(disk, Dcp(), 1, 2, records).status());
      }
      return absl::OkStatus();
    });
    ASSERT_OK_AND_ASSIGN(const ShareVerifyResult result,
                         Check(fs, Dcp(), 1, 2, records));
    EXPECT_TRUE(result.is_complete);
    EXPECT_EQ(result.report, plain);
    if (HasFailure()) return;
  }
}

TEST(ShareVerify, RecordsMayBeInAnObjectStore) {
  SimObjectServer server;
  ObjectFileSystem fs(server.Opener());
  Scenario scenario = Dcp();
  scenario.root = "s3://bucket";
  Prepare(scenario, fs);
  ASSERT_OK(ConvertCheckpoint(fs, absl::StrCat(scenario.root, kModel),
                              scenario.path(), OptionsOf(scenario)));
  const VerifyReport plain = Plain(fs, scenario);
  EXPECT_EQ(CheckAll(fs, scenario, 3, "s3://bucket/checks/step-1"), plain);
  ASSERT_OK_AND_ASSIGN(const std::optional<WorkStatus> status,
                       FindWork(fs, "s3://bucket/checks/step-1"));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->report, plain);
  EXPECT_THAT(DiscardWork(fs, "s3://bucket/checks/step-1"),
              testing::IsOkAndHolds(1u));
}

}  // namespace
}  // namespace dcp
