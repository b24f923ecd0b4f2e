// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/deepspeed/deepspeed_files.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The result for a directory with these files; names that end in a slash are
// folders.
absl::StatusOr<std::optional<DeepSpeedFiles>> Find(
    const std::vector<std::string>& names, absl::string_view latest = "") {
  const TempDir dir;
  for (const std::string& name : names) {
    if (name.back() == '/') {
      std::filesystem::create_directories(dir.Join(name));
    } else {
      dir.WriteFile(name, "");
    }
  }
  if (!latest.empty()) dir.WriteFile("latest", latest);
  DCP_ASSIGN_OR_RETURN(const SourceDirectory directory,
                       ListDirectory(Disk(), dir.path()));
  return FindDeepSpeed(directory, {});
}

TEST(DeepSpeedFiles, RanksAreOrderedAsNumbers) {
  std::vector<std::string> names = {"mp_rank_00_model_states.pt"};
  for (int rank = 10; rank >= 0; --rank) {
    names.push_back(absl::StrCat("bf16_zero_pp_rank_", rank,
                                 "_mp_rank_00_optim_states.pt"));
  }
  ASSERT_OK_AND_ASSIGN(const auto files, Find(names));
  ASSERT_TRUE(files.has_value());
  EXPECT_THAT(files->models, ElementsAre("mp_rank_00_model_states.pt"));
  ASSERT_EQ(files->optims.size(), 11u);
  EXPECT_EQ(files->optims[2], "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt");
  EXPECT_FALSE(files->is_stage3);
}

TEST(DeepSpeedFiles, ThePointerIsFollowed) {
  ASSERT_OK_AND_ASSIGN(
      const auto files,
      Find({"global_step7/mp_rank_00_model_states.pt"}, "global_step7\n"));
  ASSERT_TRUE(files.has_value());
  EXPECT_THAT(files->directory, ::testing::EndsWith("/global_step7"));
  // The Trainer's model may be all that is left.
  ASSERT_OK_AND_ASSIGN(const auto gone, Find({"x"}, "global_step7"));
  EXPECT_FALSE(gone.has_value());
  for (const char* outside : {"../x", "/etc", "..", "a/b", " "}) {
    EXPECT_THAT(Find({"x"}, outside),
                StatusIs(StatusCode::kDataLoss, HasSubstr("latest")));
  }
}

// DeepSpeed writes `latest` again for each of accelerate's models.
TEST(DeepSpeedFiles, RefusesOneOfSeveralAccelerateModels) {
  const std::vector<std::string> both = {
      "pytorch_model/mp_rank_00_model_states.pt",
      "pytorch_model_1/mp_rank_00_model_states.pt"};
  EXPECT_THAT(Find(both, "pytorch_model_1"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("latest names only the last"),
                             HasSubstr("/pytorch_model, "),
                             HasSubstr("/pytorch_model_1"))));
  ASSERT_OK_AND_ASSIGN(const auto one, Find({both[0]}, "pytorch_model"));
  EXPECT_TRUE(one.has_value());
  // Other tags name steps.
  ASSERT_OK_AND_ASSIGN(const auto step,
                       Find({"global_step1/mp_rank_00_model_states.pt",
                             "global_step2/mp_rank_00_model_states.pt"},
                            "global_step2"));
  EXPECT_TRUE(step.has_value());
}

TEST(DeepSpeedFiles, AFolderOfAUniversalCheckpointIsAParameter) {
  ASSERT_OK_AND_ASSIGN(
      const auto files,
      Find({"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt",
            "zero/optimizer_state.pt", "zero/a.w/fp32.pt", "zero/b/c/fp32.pt",
            "zero/b/c/notes.txt"}));
  ASSERT_TRUE(files.has_value());
  EXPECT_THAT(files->models, ElementsAre("mp_rank_00_model_states.pt"));
  EXPECT_THAT(files->universal,
              ElementsAre("zero/a.w/fp32.pt", "zero/b/c/fp32.pt",
                          "zero/optimizer_state.pt"));
}

TEST(DeepSpeedFiles, LinksBelowAUniversalCheckpointAreNotFollowed) {
  const TempDir dir;
  dir.WriteFile("tag/mp_rank_00_model_states.pt", "");
  dir.WriteFile("outside/fp32.pt", "");
  std::filesystem::create_directories(dir.Join("tag/zero"));
  std::filesystem::create_directory_symlink(dir.Join("outside"),
                                            dir.Join("tag/zero/w"));
  ASSERT_OK_AND_ASSIGN(const SourceDirectory directory,
                       ListDirectory(Disk(), dir.Join("tag")));
  ASSERT_OK_AND_ASSIGN(const auto files, FindDeepSpeed(directory, {}));
  EXPECT_THAT(files->universal, IsEmpty());
}

TEST(DeepSpeedFiles, NamesUnsupportedLayouts) {
  const struct {
    std::vector<std::string> names;
    std::string message;
  } cases[] = {
      {{"mp_rank_00_model_states.pt", "mp_rank_03_model_states.pt"},
       "4 model-parallel ranks"},
      {{"mp_rank_00_model_states.pt", "layer_01-model_00-model_states.pt"},
       "pipeline-parallel"},
      {{"mp_rank_00_model_states.pt",
        "layer_0_expert_1_mp_rank_00_model_states.pt"},
       "expert-parallel"},
      {{"mp_rank_00_model_states.pt", "expp_rank_1_mp_rank_00_optim_states.pt"},
       "expert-parallel"},
      {{"mp_rank_00_model_states.pt", "offloaded_tensors/"},
       "offloaded to NVMe"},
      {{"zero_pp_rank_99999999999999999999_mp_rank_00_model_states.pt"},
       "too large"},
      {{"zero_pp_rank_9999999_mp_rank_00_model_states.pt"}, "too large"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.message);
    EXPECT_THAT(Find(test.names),
                StatusIs(StatusCode::kUnimplemented, HasSubstr(test.message)));
  }
  EXPECT_THAT(
      Find({"zero_pp_rank_0_mp_rank_00_optim_states.pt"}),
      StatusIs(StatusCode::kNotFound,
               AllOf(HasSubstr("*_model_states.pt"), HasSubstr("names"))));
}

TEST(DeepSpeedFiles, LeavesOtherDirectoriesToOtherOpeners) {
  ASSERT_OK_AND_ASSIGN(const auto files, Find({"model.safetensors", "zero/"}));
  EXPECT_FALSE(files.has_value());
}

}  // namespace
}  // namespace dcp
