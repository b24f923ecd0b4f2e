// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/huggingface/trainer_opener.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

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
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

namespace fs = std::filesystem;

std::string CopyTrainer(const TempDir& dir) {
  return JoinPath(CopyGolden(dir, "dialects/transformers/trainer_single"),
                  "checkpoint-1");
}

TEST(TrainerOpener, ReadsTheStateOfTheTrainer) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(CopyTrainer(dir)));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kTransformers);
  EXPECT_THAT(checkpoint->properties(), Contains(Pair("step", "1")));
  const auto index = checkpoint->Find("extra.trainer_state");
  ASSERT_TRUE(index.has_value());
  const ObjectEntry* const object = checkpoint->entries()[*index].object();
  ASSERT_NE(object, nullptr);
  EXPECT_THAT(ToString(object->value, 1000), HasSubstr("'global_step': 1"));
  EXPECT_TRUE(checkpoint->Find("extra.scheduler.last_epoch").has_value());
  EXPECT_TRUE(checkpoint->Find("extra.rng_state.cpu").has_value());
  // An optimizer with two groups does not say which parameter has which number.
  EXPECT_TRUE(checkpoint->Find("optimizer.state.0.exp_avg").has_value());
}

TEST(TrainerOpener, AModelWithoutAnOptimizerIsAModel) {
  const TempDir dir;
  const std::string path = CopyTrainer(dir);
  fs::remove(JoinPath(path, "optimizer.pt"));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(path));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kSafetensors);
  EXPECT_TRUE(checkpoint->Find("model.norm.weight").has_value());
}

TEST(TrainerOpener, IsReadAsAModelOnRequest) {
  const TempDir dir;
  const std::string path = CopyTrainer(dir);
  OpenOptions options;
  options.dialect.from = Dialect::kSafetensors;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       Checkpoint::Open(testing::Disk(), path, options));
  EXPECT_EQ(checkpoint->dialect(), Dialect::kSafetensors);
  EXPECT_TRUE(checkpoint->Find("model.norm.weight").has_value());
}

TEST(TrainerOpener, RefusesAStateThatIsNotJson) {
  const TempDir dir;
  const std::string path = CopyTrainer(dir);
  std::ofstream(JoinPath(path, "trainer_state.json")) << "{\"global_step\": ";
  EXPECT_THAT(OpenCheckpoint(path),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("trainer_state.json: not valid JSON")));
}

}  // namespace
}  // namespace dcp
