// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/accelerate_layout.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

class AccelerateLayoutTest : public ::testing::Test {
 protected:
  absl::StatusOr<ConvertPlan> Write(const std::string& src,
                                    ConvertOptions options) {
    options.to_dialect = Dialect::kAccelerate;
    return ConvertCheckpoint(Disk(), src, dst_, std::move(options));
  }

  // The tensors at `path` whose names begin with model or optimizer.
  static std::map<std::string, std::string> StateAt(const std::string& path) {
    const absl::StatusOr<std::unique_ptr<Checkpoint>> opened =
        OpenCheckpoint(path);
    EXPECT_OK(opened);
    EXPECT_OK((*opened)->LocateAll());
    absl::StatusOr<std::map<std::string, std::string>> all = LoadAll(**opened);
    EXPECT_OK(all);
    std::erase_if(*all, [](const auto& pair) {
      return pair.first.rfind("model.", 0) != 0 &&
             pair.first.rfind("optimizer.", 0) != 0;
    });
    return *std::move(all);
  }

  const TempDir dir_;
  const std::string dst_ = dir_.Join("accelerate");
};

TEST_F(AccelerateLayoutTest, IsReadBack) {
  const std::string src = CopyGolden(dir_, "dialects/deepspeed/zero2_ws3");
  ConvertOptions options;
  ASSERT_OK_AND_ASSIGN(options.mesh, ParseMesh("shard=2"));
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan, Write(src, std::move(options)));
  EXPECT_THAT(plan.dropped, ::testing::Contains("extra.global_steps"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> written,
                       OpenCheckpoint(dst_));
  EXPECT_EQ(written->dialect(), Dialect::kAccelerate);
  EXPECT_EQ(written->files().names(),
            (std::vector<std::string>{"pytorch_model_fsdp_0/__0_0.distcp",
                                      "pytorch_model_fsdp_0/__1_0.distcp",
                                      "optimizer_0/__0_0.distcp",
                                      "optimizer_0/__1_0.distcp"}));
  EXPECT_EQ(StateAt(dst_), StateAt(src));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), dst_, {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.num_items_unchecked, 0);
}

TEST_F(AccelerateLayoutTest, AModelAloneGetsItsRoot) {
  const std::string src = CopyGolden(dir_, "dialects/hf_bin/sharded_bin");
  ASSERT_OK(Write(src, {}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> written,
                       OpenCheckpoint(dst_));
  for (const CheckpointEntry& entry : written->entries()) {
    EXPECT_EQ(entry.path[0], PathElement("model")) << entry.fqn;
  }
  EXPECT_FALSE(std::filesystem::exists(dst_ + "/optimizer_0"));
}

TEST_F(AccelerateLayoutTest, RequiresAModel) {
  ConvertOptions options;
  options.selection.parts = {StatePart::kOptimizer};
  EXPECT_THAT(Write(CopyGolden(dir_, "dialects/deepspeed/zero2_ws3"),
                    std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("accelerate requires the model")));
  EXPECT_FALSE(std::filesystem::exists(dst_));
}

TEST_F(AccelerateLayoutTest, ReplacesNothing) {
  const std::string src = CopyGolden(dir_, "dialects/deepspeed/zero2_ws3");
  std::filesystem::create_directory(dst_);
  ASSERT_OK(Write(src, {}));  // an empty directory is not in the way
  ConvertOptions options;
  options.overwrite = true;
  EXPECT_THAT(
      Write(src, std::move(options)),
      StatusIs(absl::StatusCode::kAlreadyExists,
               HasSubstr("a checkpoint with folders replaces nothing")));
  EXPECT_OK(OpenCheckpoint(dst_));
}

TEST_F(AccelerateLayoutTest, OtherDialectsAreNotWritten) {
  ConvertOptions options;
  options.to_dialect = Dialect::kMegatron;
  EXPECT_THAT(
      ConvertCheckpoint(Disk(),
                        CopyGolden(dir_, "dialects/deepspeed/zero2_ws3"), dst_,
                        std::move(options)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("can be read as megatron, but not written so")));
}

}  // namespace
}  // namespace dcp
