// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/accelerate_opener.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string Copy(const TempDir& dir, const std::string& name) {
  return CopyGolden(dir, absl::StrCat("dialects/accelerate/accelerate_", name));
}

bool Has(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.Find(name).has_value();
}

TEST(AccelerateOpener, NamesTheRestExtra) {
  const TempDir dir;
  for (const std::string name :
       {"fsdp1_sharded_ws2", "fsdp2_full_ws2", "fsdp2_ranks_ws2"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenCheckpoint(Copy(dir, name)));
    EXPECT_EQ(checkpoint->dialect(), Dialect::kAccelerate);
    EXPECT_TRUE(Has(*checkpoint, "extra.scheduler.last_epoch"));
    EXPECT_TRUE(Has(*checkpoint, "extra.random_states.step"));
    // Both ranks were at the same step, but not in the same random state.
    EXPECT_FALSE(Has(*checkpoint, "extra.random_states.step@1"));
    EXPECT_TRUE(Has(*checkpoint, "extra.random_states.random_state@1"));
  }
}

TEST(AccelerateOpener, ASecondModelHasANumber) {
  const TempDir dir;
  const std::string path = Copy(dir, "fsdp1_sharded_ws2");
  for (const std::string name : {"pytorch_model_fsdp_", "optimizer_"}) {
    fs::copy(JoinPath(path, name + "0"), JoinPath(path, name + "1"),
             fs::copy_options::recursive);
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_TRUE(Has(*checkpoint, "model.lm_head.weight"));
  EXPECT_TRUE(Has(*checkpoint, "model_1.lm_head.weight"));
  EXPECT_TRUE(Has(*checkpoint, "optimizer.param_groups.0.lr"));
  EXPECT_TRUE(Has(*checkpoint, "optimizer_1.param_groups.0.lr"));
  ASSERT_OK(checkpoint->LocateAll());
}

TEST(AccelerateOpener, NamesMissingFilesOfOtherMachines) {
  const TempDir dir;
  const std::string path = Copy(dir, "fsdp2_sharded_ws2");
  fs::remove(JoinPath(path, "optimizer_0/__1_0.distcp"));
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("optimizer_0: 1 of the 2 files that its "
                                       ".metadata names are missing: "
                                       "__1_0.distcp"),
                             HasSubstr("copy them together"))));
}

TEST(AccelerateOpener, SaysThatAnIndexIsMissing) {
  const TempDir dir;
  const std::string path = Copy(dir, "fsdp2_sharded_ws2");
  fs::remove(JoinPath(path, "pytorch_model_fsdp_0/.metadata"));
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("pytorch_model_fsdp_0: there are data files, "
                                 "but no .metadata")));
}

TEST(AccelerateOpener, SaysThatARanksFileIsMissing) {
  const TempDir dir;
  const std::string path = Copy(dir, "fsdp2_ranks_ws2");
  fs::remove(JoinPath(path, "optimizer_0_rank0.bin"));
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("optimizer_0_rank{rank}.bin only 1 of 2 are "
                                 "there, those of ranks 1")));
}

TEST(AccelerateOpener, AnOptimizerAloneIsNotACheckpoint) {
  const TempDir dir;
  const std::string path = Copy(dir, "fsdp2_full_ws2");
  fs::remove(JoinPath(path, "pytorch_model_fsdp.bin"));
  EXPECT_THAT(OpenCheckpoint(path), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace dcp
