// SPDX-License-Identifier: Apache-2.0
// Universal DeepSpeed checkpoints with one change each.
#include "dcp/checkpoint/dialects/deepspeed/universal_state.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/archive_editor.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::ArchiveEditor;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// A vector with five elements in storage 0.
Value Five(ArchiveEditor& editor) {
  return MakeTensor(editor.arena(), DType::kFloat32, {5}, false, "0");
}

class Universal {
 public:
  explicit Universal(absl::string_view name)
      : path_(CopyGolden(dir_, absl::StrCat("dialects/deepspeed/", name))) {}
  const std::string& path() const { return path_; }
  std::string FilePath(absl::string_view name) const {
    return absl::StrCat(path_, "/global_step1_universal/zero/", name);
  }

 private:
  TempDir dir_;
  std::string path_;
};

TEST(UniversalState, FilesThatDoNotFitAreRefused) {
  const Universal missing("universal_zero2_ws3");
  std::filesystem::remove(missing.FilePath("norm.bias/fp32.pt"));
  EXPECT_THAT(OpenCheckpoint(missing.path()),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("zero/norm.bias/fp32.pt is missing")));
  const Universal moment("universal_zero2_ws3");
  {
    ArchiveEditor e(moment.FilePath("norm.bias/exp_avg.pt"));
    e.Set({"param"}, Five(e));
    e.Save();
  }
  EXPECT_THAT(
      OpenCheckpoint(moment.path()),
      StatusIs(StatusCode::kDataLoss, HasSubstr("norm.bias: exp_avg.pt")));
  const Universal bare("universal_zero3_ws2");
  {
    ArchiveEditor e(bare.FilePath("embed.weight/fp32.pt"));
    e.SetRoot(Five(e));
    e.Save();
  }
  EXPECT_THAT(OpenCheckpoint(bare.path()),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("embed.weight: fp32.pt: expected shape")));
}

// The vocabulary had been padded for model parallelism.
TEST(UniversalState, AParameterMayBeSmaller) {
  const Universal copied("universal_zero2_ws3");
  for (const char* key : {"fp32", "exp_avg", "exp_avg_sq"}) {
    ArchiveEditor e(copied.FilePath(absl::StrCat("embed.weight/", key, ".pt")));
    e.Set({"param"},
          MakeTensor(e.arena(), DType::kFloat32, {11, 6}, false, "0"));
    e.Set({"vocab_tensor"}, Value::Bool(true));
    e.Save();
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(copied.path()));
  EXPECT_EQ(GetEntry(*checkpoint, "model.embed.weight").tensor()->shape,
            Dims({11, 6}));
}

TEST(UniversalState, TheModulesWeightsCanBeReadInstead) {
  const Universal copied("universal_zero2_ws3");
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      Checkpoint::Open(Disk(), copied.path(),
                       {.dialect = {.low_precision_weights = true}}));
  EXPECT_TRUE(checkpoint->Find("model.embed.weight").has_value());
  EXPECT_TRUE(
      checkpoint->Find("optimizer.state.embed.weight.exp_avg").has_value());
}

// Each stage in a pipeline knows only the parameters in that stage.
TEST(UniversalState, APipelineIsReadOnceItIsUniversal) {
  EXPECT_THAT(
      OpenCheckpoint(Universal("pipe_s2").path()),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("ds_to_universal.py")));
  const Universal copied("universal_pipe2");
  ASSERT_OK(OpenCheckpoint(copied.path()));
  EXPECT_THAT(Checkpoint::Open(Disk(), copied.path(),
                               {.dialect = {.low_precision_weights = true}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("low_precision_weights")));
  std::filesystem::remove(copied.path() +
                          "/global_step2_universal/zero/4.bias/fp32.pt");
  EXPECT_THAT(OpenCheckpoint(copied.path()),
              StatusIs(StatusCode::kNotFound, HasSubstr("4.bias/fp32.pt")));
}

// Buffers are in the layers' files, which ds_to_universal.py leaves out.
TEST(UniversalState, ReportsAPipelinesBuffersAsALoss) {
  const Universal copied("universal_pipe2");
  {
    ArchiveEditor e(copied.path() +
                    "/global_step2_universal/mp_rank_01_model_states.pt");
    e.Set({"buffer_names"}, e.arena().List({e.arena().Str("3.scale")}));
    e.Save();
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(copied.path()));
  ASSERT_EQ(checkpoint->losses().size(), 1u);
  EXPECT_THAT(checkpoint->losses()[0].text, HasSubstr("3.scale"));
  EXPECT_TRUE(checkpoint->losses()[0].needs_consent);
}

TEST(UniversalState, FrozenParametersOfOtherStagesAreRefused) {
  const Universal copied("universal_pipe2");
  {
    ArchiveEditor e(copied.path() +
                    "/global_step2_universal/mp_rank_01_model_states.pt");
    e.Set({"frozen_param_shapes"},
          e.arena().Dict(
              {e.arena().Str("3.frozen"), e.arena().List({Value::Int(2)})}));
    e.Save();
  }
  EXPECT_THAT(OpenCheckpoint(copied.path()),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("3.frozen")));
}

}  // namespace
}  // namespace dcp
