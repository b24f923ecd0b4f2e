// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/prepare_conversion.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleTensor;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Conversion, PlanChangesNothing) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  const uint64_t before = fs.num_mutations();
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  const auto plan = PlanConvert(fs, "/a", "/b", std::move(options));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->files.size(), 2u);
  EXPECT_EQ(plan->num_tensors, 3u);
  EXPECT_EQ(fs.num_mutations(), before);
}

TEST(Conversion, ReportsADiskThatIsTooSmall) {
  SimStorage fs({.capacity_bytes = 900'000});
  SaveAll(fs, "/a", {SampleTensor("a", DType::kFloat32, {125'000})});
  const auto result = ConvertCheckpoint(fs, "/a", "/b", {});
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(StatusSide(result.status()), ErrorSide::kDestination);
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
}

// Each file alone would fit; replaced files do not make room.
TEST(Conversion, WhatDoesNotFitIsRefusedBeforeItBegins) {
  for (const bool overwrite : {false, true}) {
    SimStorage fs({.capacity_bytes = 900'000});
    SaveAll(fs, "/a", {SampleTensor("a", DType::kFloat32, {100'000})});
    if (overwrite) {
      SaveAll(fs, "/b", {SampleTensor("b", DType::kFloat32, {30'000})});
    }
    const auto options = [&] {
      ConvertOptions made;
      made.mesh = *ParseMesh(overwrite ? "x=2" : "x=3");
      made.selection.casts = {"float64"};
      made.overwrite = overwrite;
      return made;
    };
    const uint64_t free = *fs.FreeBytes("/");
    const auto refused =
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("/b: "), HasSubstr("for all files together"),
                       HasSubstr(absl::StrCat(free, " are free"))));
    const uint64_t num_before = fs.num_mutations();
    EXPECT_THAT(PlanConvert(fs, "/a", "/b", options()), refused);
    EXPECT_EQ(fs.num_mutations(), num_before);
    bool begun = false;
    ConvertOptions real = options();
    real.on_plan = [&](const ConvertPlan&) { begun = true; };
    const auto result = ConvertCheckpoint(fs, "/a", "/b", std::move(real));
    // Its lock file takes some space.
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("for all files together")));
    EXPECT_EQ(StatusSide(result.status()), ErrorSide::kDestination);
    EXPECT_FALSE(begun);
    EXPECT_EQ(fs.Stat("/b").ok(), overwrite);
  }
}

// Rows become columns, a storage is read for one view only, and digests are
// compared: the plan accounts for all of this.
TEST(Conversion, APlanSaysWhatIsReallyRead) {
  SimStorage fs;
  SaveAll(fs, "/rows",
          {SampleTensor("a", DType::kFloat32, {64, 4096}),
           SampleTensor("b", DType::kBFloat16, {3, 1000})});
  ASSERT_OK(fs.MakeDirectory("/hf"));
  ASSERT_OK(ConvertCheckpoint(fs, "/rows", "/made", [] {
    ConvertOptions options;
    options.to = Format::kSafetensors;
    return options;
  }()));
  for (const char* source : {"/rows", "/made"}) {
    for (const char* mesh : {"x=1", "x=5"}) {
      SCOPED_TRACE(absl::StrCat(source, " ", mesh));
      const auto options = [&] {
        ConvertOptions made;
        made.mesh = *ParseMesh(mesh);
        made.placements = {{"*", *ParsePlacements("S(1)")}};
        return made;
      };
      const auto plan = PlanConvert(fs, source, "/out", options());
      ASSERT_OK(plan);
      TransferStats stats;
      ConvertOptions real = options();
      real.stats = &stats;
      ASSERT_OK(ConvertCheckpoint(
          fs, source, absl::StrCat("/out", mesh, source + 1), std::move(real)));
      EXPECT_EQ(plan->bytes_to_read, stats.bytes_read);
    }
  }
}

TEST(Conversion, APlanCountsTheIndexAndMayBeRefused) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=4");
  options.admit = [](const ConvertPlan& plan) {
    return absl::ResourceExhaustedError(absl::StrCat(plan.memory_bytes));
  };
  const auto refused = ConvertCheckpoint(fs, "/a", "/b", std::move(options));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
  ConvertOptions few;
  few.mesh = *ParseMesh("x=1");
  ConvertOptions many;
  many.mesh = *ParseMesh("x=400");
  const auto small = PlanConvert(fs, "/a", "/b", std::move(few));
  const auto large = PlanConvert(fs, "/a", "/b", std::move(many));
  ASSERT_OK(small);
  ASSERT_OK(large);
  EXPECT_GE(small->index_bytes, 3 * kIndexBytesPerChunkRead);
  EXPECT_GE(large->index_bytes,
            3 * kIndexBytesPerChunk + 10 * kOutputBytesPerChunk);
}

}  // namespace
}  // namespace dcp
