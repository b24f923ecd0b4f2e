// SPDX-License-Identifier: Apache-2.0
// Every verb tells the losses of a source. A part that the files have is left
// out only if the caller asks for it.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::string_view kFlatWeights =
    "dialects/accelerate/accelerate_fsdp1_local_ws3";

TEST(ConvertLosses, WeightsKeepTheirShapesUnlessAsked) {
  const TempDir dir;
  const std::string src = CopyGolden(dir, kFlatWeights);
  const auto convert = [&](bool allow) {
    ConvertOptions options;
    options.to = Format::kSafetensors;
    options.selection.parts = {StatePart::kModel};
    options.allow_losses = allow;
    return ConvertCheckpoint(Disk(), src, dir.Join("hf"), std::move(options));
  };
  EXPECT_THAT(convert(false),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("flat parameters of FSDP1"),
                             HasSubstr("the option like or"),
                             HasSubstr("the option allow_losses"))));
  EXPECT_FALSE(std::filesystem::exists(dir.Join("hf")));
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan, convert(true));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("flat parameters of FSDP1")));
}

// The entries of the index stay in it.
TEST(ConvertLosses, FromDcpToDcpNothingIsLost) {
  const TempDir dir;
  const std::string src = CopyGolden(dir, "dialects/fsdp1/dcp_local_ws2");
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), src, dir.Join("dcp"), {}));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("flat parameters of FSDP1")));
  EXPECT_THAT(ConvertCheckpoint(Disk(), src, dir.Join("m.pt"), {}),
              StatusIs(StatusCode::kFailedPrecondition));
}

// The optimizer is not there, so nobody can lose it; but it is said.
TEST(ConvertLosses, AreToldByEveryVerb) {
  const TempDir dir;
  const std::string src = CopyGolden(dir, "dialects/deepspeed/zero2_ws3");
  for (int rank = 0; rank < 3; ++rank) {
    std::filesystem::remove(absl::StrCat(src, "/global_step1/zero_pp_rank_",
                                         rank, "_mp_rank_00_optim_states.pt"));
  }
  const auto missing = HasSubstr("*_optim_states.pt are missing");
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), src, dir.Join("dcp"), {}));
  EXPECT_THAT(plan.warnings, ElementsAre(missing));
  ASSERT_OK_AND_ASSIGN(const ConvertPlan planned,
                       PlanConvert(Disk(), src, dir.Join("other"), {}));
  EXPECT_THAT(planned.warnings, ElementsAre(missing));
  ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                       VerifyCheckpoint(Disk(), src, {}));
  EXPECT_THAT(verified.warnings, ElementsAre(missing));
  EXPECT_THAT(verified.findings, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const DiffReport compared,
                       DiffCheckpoints(Disk(), dir.Join("dcp"), src, {}));
  EXPECT_THAT(compared.warnings, ElementsAre(AllOf(HasSubstr("B: "), missing)));
  // It is about the weights alone.
  ConvertOptions extra;
  extra.selection.parts = {StatePart::kExtra};
  ASSERT_OK_AND_ASSIGN(
      const ConvertPlan of_extra,
      PlanConvert(Disk(), src, dir.Join("extra"), std::move(extra)));
  EXPECT_THAT(of_extra.warnings, IsEmpty());
}

TEST(ConvertLosses, AccelerateGetsNoNumbersForNames) {
  const TempDir dir;
  const std::string src = CopyGolden(dir, "dialects/accelerate/accelerate_ddp");
  ConvertOptions options;
  options.to_dialect = Dialect::kAccelerate;
  EXPECT_THAT(
      ConvertCheckpoint(Disk(), src, dir.Join("a"), std::move(options)),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("optimizer.state.0.step"),
                     HasSubstr("the option optimizer_in_model_order"))));
  ConvertOptions model;
  model.to_dialect = Dialect::kAccelerate;
  model.selection.parts = {StatePart::kModel};
  ASSERT_OK(ConvertCheckpoint(Disk(), src, dir.Join("a"), std::move(model)));
  // Two models become two folders.
  std::filesystem::copy(src + "/model.safetensors",
                        src + "/model_1.safetensors");
  ConvertOptions both;
  both.to_dialect = Dialect::kAccelerate;
  both.selection.parts = {StatePart::kModel};
  ASSERT_OK(ConvertCheckpoint(Disk(), src, dir.Join("b"), std::move(both)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> written,
                       OpenCheckpoint(dir.Join("b")));
  EXPECT_TRUE(written->Find("model.layers.0.w").has_value());
  EXPECT_TRUE(written->Find("model_1.layers.0.w").has_value());
  EXPECT_TRUE(
      std::filesystem::exists(dir.Join("b/pytorch_model_fsdp_1/.metadata")));
}

TEST(ConvertLosses, APartThatIsNotKnownIsRefused) {
  const TempDir dir;
  const std::string src = CopyGolden(dir, "dialects/torch/tutorial.pt");
  ConvertOptions options;
  options.selection.parts = {StatePart::kModel};
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), src, dir.Join("m.safetensors"),
                                         std::move(options)));
  EXPECT_EQ(plan.num_tensors, 2u);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> model,
                       OpenCheckpoint(dir.Join("m.safetensors")));
  EXPECT_TRUE(model->Find("weight").has_value());
  ConvertOptions renamed;
  renamed.selection.renames = {"s/model_state_dict/policy/"};
  ASSERT_OK(
      ConvertCheckpoint(Disk(), src, dir.Join("p.pt"), std::move(renamed)));
  ConvertOptions unknown;
  unknown.selection.parts = {StatePart::kModel};
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("p.pt"), dir.Join("q.pt"),
                                std::move(unknown)),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("optimizer_state_dict, policy")));
}

}  // namespace
}  // namespace dcp
