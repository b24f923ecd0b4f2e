// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::ExpectSame;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

// A mixture of two states must not become a checkpoint whose checksums are
// right.
TEST(Convert, ASourceThatIsWrittenToPublishesNothing) {
  const testing::TempDir dir;
  FileSystem& fs = testing::Disk();
  SaveAll(fs, dir.Join("src"), SmallModel());
  for (const char* name : {"dcp", "one.safetensors", "one.pt"}) {
    SCOPED_TRACE(name);
    ConvertOptions options;
    options.on_plan = [&](const ConvertPlan&) {
      for (const auto& file :
           std::filesystem::directory_iterator(dir.Join("src"))) {
        if (file.path().extension() != ".distcp") continue;
        std::filesystem::last_write_time(
            file.path(), file.last_write_time() + std::chrono::seconds(1));
      }
    };
    const auto plan = ConvertCheckpoint(fs, dir.Join("src"), dir.Join(name),
                                        std::move(options));
    EXPECT_THAT(plan, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("changed while it was read")));
    EXPECT_EQ(StatusSide(plan.status()), ErrorSide::kSource);
    EXPECT_EQ(fs.List(dir.path())->size(), 1u);
  }
  // Nothing writes to it any more.
  EXPECT_OK(ConvertCheckpoint(fs, dir.Join("src"), dir.Join("dcp"), {}));
}

// Rows in, columns out: each output file needs a part of every row.
void ExpectSourceReadOnce(absl::string_view mesh, absl::string_view placements,
                          uint64_t memory_bytes) {
  SCOPED_TRACE(absl::StrCat(mesh, " ", placements, " ", memory_bytes));
  SimStorage fs;
  const std::vector<SampleTensor> tensors = {
      SampleTensor("a", DType::kFloat32, {1024, 2048}),
      SampleTensor("b", DType::kFloat32, {2048, 1024}),
      SampleTensor("c", DType::kBFloat16, {1000, 4000})};
  uint64_t num_bytes = 0;
  for (const SampleTensor& tensor : tensors) num_bytes += tensor.bytes.size();
  SaveAll(fs, "/full", tensors);
  TransferStats stats;
  ConvertOptions options;
  options.mesh = *ParseMesh(mesh);
  options.placements = {{"*", *ParsePlacements(placements)}};
  options.memory_bytes = memory_bytes;
  options.stats = &stats;
  ASSERT_OK(ConvertCheckpoint(fs, "/full", "/parts", std::move(options)));
  EXPECT_LE(static_cast<double>(stats.bytes_read.load()),
            1.2 * static_cast<double>(num_bytes));
  ExpectSame(fs, "/full", "/parts");
}

TEST(Convert, ReadsTheSourceOnceWhenItCutsColumns) {
  ExpectSourceReadOnce("tp=8", "S(1)", kDefaultMemoryBytes);
}

TEST(Convert, ReadsTheSourceOnceOnATwoDimensionalMesh) {
  ExpectSourceReadOnce("dp=2,tp=2", "S(0),S(1)", kDefaultMemoryBytes);
}

TEST(Convert, EveryMeshAndBackIsTheSame) {
  for (const auto& [mesh, placements] :
       std::vector<std::pair<std::string, std::string>>{
           {"x=3", "S(0)"},
           {"x=4", "S(1)"},
           {"x=2", "R"},
           {"d=2,t=2", "S(0),S(1)"}}) {
    SCOPED_TRACE(absl::StrCat(mesh, " ", placements));
    SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
    SaveAll(fs, "/a", SmallModel());
    ConvertOptions options;
    options.mesh = *ParseMesh(mesh);
    options.placements = {{"[ab]", *ParsePlacements(placements)}};
    ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
    ExpectSame(fs, "/a", "/b");
    ConvertOptions back;
    back.consolidate = true;
    ASSERT_OK(ConvertCheckpoint(fs, "/b", "/c", std::move(back)));
    ExpectSame(fs, "/a", "/c");
  }
}

TEST(Convert, ReshardsInPlace) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  SaveAll(fs, "/expected", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  options.overwrite = true;
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/a", std::move(options)));
  ExpectSame(fs, "/expected", "/a");
}

TEST(Convert, GoesThroughEveryFormatAndBack) {
  for (const std::string name :
       {"/m.safetensors", "/m.pt", "/directory", "/sharded"}) {
    SCOPED_TRACE(name);
    SimStorage fs;
    SaveAll(fs, "/a", SmallModel());
    ConvertOptions options;
    if (name[1] != 'm') options.to = Format::kSafetensors;
    if (name == "/sharded") options.max_shard_bytes = 100;
    ASSERT_OK(ConvertCheckpoint(fs, "/a", name, std::move(options)));
    ConvertOptions back;
    back.to = Format::kDcp;
    ASSERT_OK(ConvertCheckpoint(fs, name, "/back", std::move(back)));
    ExpectSame(fs, "/a", "/back");
  }
}

TEST(Convert, StopsWithoutLitter) {
  for (const std::string dst : {"/dcp", "/m.pt", "/m.safetensors"}) {
    SimStorage fs;
    SaveAll(fs, "/a", SmallModel());
    const auto before = fs.List("/");
    std::stop_source stop;
    ConvertOptions options;
    options.stop = stop.get_token();
    options.on_plan = [&](const ConvertPlan&) { stop.request_stop(); };
    const auto result = ConvertCheckpoint(fs, "/a", dst, std::move(options));
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(StatusSide(result.status()), ErrorSide::kNone);
    ASSERT_OK_AND_ASSIGN(const auto after, fs.List("/"));
    EXPECT_EQ(after.size(), before->size());
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
}

// "fsync: Input/output error" alone does not say where to look.
TEST(Convert, EveryFaultNamesAPath) {
  uint64_t num_synced = 0;
  for (const std::string dst : {"/dcp", "/m.pt", "/m.safetensors"}) {
    absl::Status status = absl::UnavailableError("");
    for (uint64_t n = 0; !status.ok(); ++n) {
      SimStorage fs;
      SaveAll(fs, "/a", SmallModel());
      const uint64_t before = fs.num_operations();
      fs.FailOperation(n, EIO);
      status = ConvertCheckpoint(fs, "/a", dst, {}).status();
      EXPECT_THAT(status.message(),
                  AnyOf(HasSubstr("/"), HasSubstr("__0_0"), Eq("")))
          << dst << " " << n;
      if (absl::StrContains(status.message(), ": fsync")) ++num_synced;
      // A failure to clean up is not a failure of the conversion.
      if (status.ok() && n < fs.num_operations() - before) {
        status = absl::UnavailableError("");
      }
    }
  }
  EXPECT_GE(num_synced, 3u);
}

TEST(Convert, RefusesToWriteNoTensor) {
  SimStorage fs;
  SampleState state;
  state.AddObject("step", Value::Int(5));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, "/objects", state.state(), coordinator, {}));
  ConvertOptions drop;
  drop.drop_non_tensors = true;
  EXPECT_THAT(
      ConvertCheckpoint(fs, "/objects", "/x.safetensors", std::move(drop)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("none of the 1 entries")));
  EXPECT_EQ(fs.List("/")->size(), 1u);
  EXPECT_OK(ConvertCheckpoint(fs, "/objects", "/x.pt", {}));
}

}  // namespace
}  // namespace dcp
