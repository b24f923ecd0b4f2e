// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/megatron_files.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::Disk;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::string_view kConfig =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";

absl::StatusOr<bool> Recognise(const TempDir& dir,
                               const OpenOptions& options = {}) {
  DCP_ASSIGN_OR_RETURN(const SourceDirectory directory,
                       ListDirectory(Disk(), dir.path()));
  return IsMegatronDirectory(directory, options, {});
}

TEST(MegatronFiles, TheConfigIsTheSign) {
  const TempDir dir;
  EXPECT_THAT(Recognise(dir), IsOkAndHolds(false));
  dir.WriteFile(".metadata", "");
  EXPECT_THAT(Recognise(dir), IsOkAndHolds(false));
  dir.WriteFile("metadata.json", kConfig);
  EXPECT_THAT(Recognise(dir), IsOkAndHolds(true));
  // Other programs have files with this name.
  for (const std::string& other :
       {std::string("{"), std::string("[1]"), std::string("{\"a\": 1}"),
        std::string(R"({"x": {"sharded_backend": "torch_dist"}})"),
        std::string(1 << 20, ' ')}) {
    dir.WriteFile("metadata.json", other);
    EXPECT_THAT(Recognise(dir), IsOkAndHolds(false)) << other.substr(0, 40);
  }
}

TEST(MegatronFiles, OtherBackendsAreRefused) {
  const TempDir dir;
  dir.WriteFile("metadata.json", R"({"sharded_backend": "zarr"})");
  EXPECT_THAT(Recognise(dir),
              StatusIs(StatusCode::kUnimplemented,
                       AllOf(HasSubstr("'zarr'"),
                             HasSubstr("--ckpt-convert-format torch_dist"))));
  dir.WriteFile("metadata.json", R"({"sharded_backend": "other"})");
  EXPECT_THAT(Recognise(dir), StatusIs(StatusCode::kUnimplemented,
                                       HasSubstr("expected torch_dist")));
  dir.WriteFile(
      "metadata.json",
      R"({"sharded_backend": "torch_dist", "sharded_backend_version": 2})");
  EXPECT_THAT(Recognise(dir), StatusIs(StatusCode::kUnimplemented,
                                       HasSubstr("version 2 of the backend")));
  dir.WriteFile("metadata.json", kConfig);
  EXPECT_THAT(Recognise(dir),
              StatusIs(StatusCode::kNotFound, HasSubstr("no .metadata")));
}

TEST(MegatronFiles, TheLegacyFormatIsRefused) {
  const TempDir dir;
  dir.WriteFile("mp_rank_00_000/model_optim_rng.pt", "");
  dir.WriteFile("mp_rank_01_000/model_optim_rng.pt", "");
  EXPECT_THAT(
      Recognise(dir),
      StatusIs(StatusCode::kUnimplemented,
               AllOf(HasSubstr("mp_rank_00_000/model_optim_rng.pt"),
                     HasSubstr("between 2 ranks"), HasSubstr("as pt"))));
  const TempDir other;
  other.WriteFile("mp_rank_00/x.pt", "");
  EXPECT_THAT(Recognise(other), IsOkAndHolds(false));
}

TEST(MegatronFiles, ASaveThatDidNotFinishIsRefused) {
  const TempDir dir;
  dir.WriteFile(".metadata", "");
  dir.WriteFile("common.pt", "");
  EXPECT_THAT(Recognise(dir), StatusIs(StatusCode::kNotFound,
                                       HasSubstr("the save did not finish")));
  OpenOptions options;
  options.dialect.from = Dialect::kMegatron;
  EXPECT_THAT(Recognise(dir, options), IsOkAndHolds(true));
  // Later releases have an entry instead.
  CheckpointParts parts;
  parts.entries.push_back(
      {.fqn = std::string(kCommonEntry), .path = {}, .value = ObjectEntry()});
  EXPECT_THAT(CheckMegatronSaveFinished("dir", parts),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("dir: the save did not finish")));
  parts.entries[0].fqn = "common_state";
  EXPECT_OK(CheckMegatronSaveFinished("dir", parts));
}

}  // namespace
}  // namespace dcp
