// SPDX-License-Identifier: Apache-2.0
// Refusals, reports and repairs of workers that share a conversion.
#include "dcp/checkpoint/share/share_commit.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::AllWork;
using ::dcp::testing::Expected;
using ::dcp::testing::ExpectSame;
using ::dcp::testing::kModel;
using ::dcp::testing::OptionsOf;
using ::dcp::testing::Prepare;
using ::dcp::testing::SaveModel;
using ::dcp::testing::Scenario;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Work;
using ::testing::HasSubstr;

const Scenario& Simple() {
  static const auto* const scenario =
      new Scenario{.name = "dcp", .dst = "out", .mesh = "shard=3"};
  return *scenario;
}

TEST(ShareCommit, WorkersWithAnotherPlanAreTold) {
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

TEST(ShareCommit, AnotherCheckpointIsNotReplacedWithoutBeingAsked) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK(SaveModel(fs, Simple().path(), 3));
  EXPECT_THAT(Work(fs, Simple(), 0, 2),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/out")));
}

TEST(ShareCommit, FilesThatSomebodyRemovedAreWrittenAgain) {
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

TEST(ShareCommit, DamageIsNotRecorded) {
  SimStorage fs;
  Prepare(Simple(), fs);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> model,
                       Checkpoint::Open(fs, kModel, {}));
  ASSERT_OK(model->LocateAll());
  const ChunkLocation& last = model->entries()[4].tensor()->locations[0];
  const std::string path = model->files().FullPath(last.item.file);
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

TEST(ShareCommit, AFullDiskIsNamedAndTheRestIsKept) {
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

TEST(ShareCommit, ReportsWhatOneProcessReports) {
  for (const char* source : {"/model", "/bare.safetensors"}) {
    SimStorage fs;
    Prepare(Simple(), fs);
    // Without digests.
    ConvertOptions bare;
    bare.memory_bytes = kMinMemoryBytes;
    ASSERT_OK_AND_ASSIGN(const File file,
                         fs.Create("/bare.safetensors", 0, DirectMode::kOff));
    uint64_t size = 0;
    bare.stream = [&](ByteSpan bytes) {
      const absl::Status written = fs.Write(file, size, bytes);
      size += bytes.size();
      return written;
    };
    ASSERT_OK(ConvertCheckpoint(fs, kModel, "-", std::move(bare)));
    ASSERT_OK(fs.Close(file));
    ASSERT_OK_AND_ASSIGN(
        const ConvertPlan plain,
        ConvertCheckpoint(fs, source, "/place/plain", OptionsOf(Simple())));
    absl::StatusOr<ShareResult> last;
    for (uint32_t i = 0; i < 3; ++i) {
      last = ConvertShare(fs, source, Simple().path(), OptionsOf(Simple()),
                          {.share = {i, 3}, .piece_bytes = 700});
      ASSERT_OK(last.status());
    }
    ASSERT_TRUE(last->has_committed);
    const SourceCheckReport& check = last->plan.check;
    EXPECT_TRUE(check.checked);
    EXPECT_EQ(check.num_items_unchecked, plain.check.num_items_unchecked);
    EXPECT_EQ(check.bytes_unchecked, plain.check.bytes_unchecked);
    EXPECT_GE(check.num_crcs_checked, plain.check.num_crcs_checked);
  }
}

TEST(ShareCommit, ThereAreNoOtherShares) {
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
