// SPDX-License-Identifier: Apache-2.0

#include "config/model/train_config.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(TrainConfig, SameTrainingComparesValues) {
  TrainConfig a;
  EXPECT_TRUE(same_training(a, TrainConfig{}));
  a.loop.steps = 10;
  EXPECT_FALSE(same_training(a, TrainConfig{}));
  a = {};
  a.checkpoint.folder = std::string("x");
  EXPECT_FALSE(same_training(a, TrainConfig{}));
  a = {};
  a.sharding.reshard_after_forward = ReshardSetting(true);
  EXPECT_FALSE(same_training(a, TrainConfig{}));
  a = {};
  a.precision.param_dtype = dcp::DType::kBFloat16;
  EXPECT_FALSE(same_training(a, TrainConfig{}));
  a = {};
  a.mesh.num_processes = 8;
  EXPECT_FALSE(same_training(a, TrainConfig{}));
}

TEST(TrainConfig, SameTrainingIgnoresPlacesAndVersions) {
  TrainConfig a;
  a.sharding.fsdp_version = 1;
  a.loop.steps = Setting<std::optional<int64_t>>(
      10, SourceLocation{.file = "a", .line = 1});
  TrainConfig b;
  b.loop.steps = 10;
  EXPECT_TRUE(same_training(a, b));
  EXPECT_EQ(a.sharding.fsdp_version, 1);
}

}  // namespace
}  // namespace fsdp
