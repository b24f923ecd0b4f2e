// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/sharded_grad_scaler.h"

#include <cmath>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/operator_counts.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/optim/sgd.h"

namespace fsdp {
namespace {

using testing::Count;
using testing::CountingBackend;
using ::testing::HasSubstr;
using testing::OperatorCounts;
using testing::RunRanks;
using testing::ThrownMessage;

struct Job {
  at::Tensor parameter = at::ones({3}).requires_grad_();
  torch::optim::SGD optimizer{std::vector<at::Tensor>{parameter},
                              torch::optim::SGDOptions(1)};

  // One iteration's backward; the loss has the gradient 2.
  void Backward(ShardedGradScaler& scaler) {
    optimizer.zero_grad();
    scaler.scale((parameter * 2).sum()).backward();
  }
};

TEST(ShardedGradScaler, UnscalesStepsAndKeepsTheScale) {
  RunRanks(2, [] {
    init_process_group();
    CountingBackend& counts = Count(world_group());
    Job job;
    ShardedGradScaler scaler({.init_scale = 4});
    job.Backward(scaler);
    EXPECT_EQ(job.parameter.grad()[0].item<float>(), 8);
    counts.Reset();
    scaler.unscale_(job.optimizer);
    EXPECT_EQ(job.parameter.grad()[0].item<float>(), 2);
    EXPECT_FALSE(scaler.found_inf(job.optimizer));
    EXPECT_TRUE(scaler.step(job.optimizer));
    EXPECT_EQ(job.parameter[0].item<float>(), -1);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 4);
    EXPECT_EQ(counts.ToString(), "all_reduce 1");
  });
}

TEST(ShardedGradScaler, OnlyStepReadsTheResult) {
  RunRanks(1, [] {
    init_process_group();
    Job job;
    ShardedGradScaler scaler;
    job.Backward(scaler);
    scaler.unscale_(job.optimizer);
    const OperatorCounts operators;
    scaler.step(job.optimizer);
    EXPECT_FALSE(scaler.found_inf(job.optimizer));
    scaler.update();
    // step's two numbers, which come to the CPU in one tensor.
    EXPECT_EQ(operators.calls("aten::_local_scalar_dense"), 2);
  });
}

TEST(ShardedGradScaler, OneRanksInfinitySkipsTheStepOfAll) {
  RunRanks(3, [] {
    init_process_group();
    for (const double bad : {INFINITY, NAN}) {
      Job job;
      ShardedGradScaler scaler({.init_scale = 4});
      job.Backward(scaler);
      if (get_rank() == 1) job.parameter.mutable_grad()[2] = bad;
      EXPECT_FALSE(scaler.step(job.optimizer));
      EXPECT_TRUE(scaler.found_inf(job.optimizer));
      EXPECT_EQ(job.parameter[0].item<float>(), 1);
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), 2);
      // The next iteration works.
      job.Backward(scaler);
      EXPECT_TRUE(scaler.step(job.optimizer));
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), 2);
    }
  });
}

TEST(ShardedGradScaler, GrowsAfterAnIntervalWithoutSkips) {
  RunRanks(2, [] {
    init_process_group();
    Job job;
    ShardedGradScaler scaler(
        {.init_scale = 4, .growth_factor = 3, .growth_interval = 2});
    std::vector<double> scales;
    for (int i = 0; i < 5; ++i) {
      job.Backward(scaler);
      if (i == 2 && get_rank() == 0) job.parameter.mutable_grad().fill_(NAN);
      scaler.step(job.optimizer);
      scaler.update();
      scales.push_back(scaler.get_scale());
    }
    EXPECT_EQ(scales, (std::vector<double>{4, 12, 6, 6, 18}));
  });
}

TEST(ShardedGradScaler, RanksWithoutGradientsTakePart) {
  RunRanks(2, [] {
    init_process_group();
    Job job;
    ShardedGradScaler scaler;
    scaler.scale(at::ones({}));
    if (get_rank() == 0) {
      job.parameter.mutable_grad() = at::full({3}, 65536.0);
    }
    EXPECT_TRUE(scaler.step(job.optimizer));
    scaler.update();
    job.optimizer.zero_grad();
    EXPECT_THAT(ThrownMessage([&] { scaler.step(job.optimizer); }),
                HasSubstr("no parameter of this optimizer has a gradient"));
  });
}

TEST(ShardedGradScaler, AgreesOverTheGivenGroup) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    Job job;
    ShardedGradScaler scaler({}, mesh.get_group("b"));
    job.Backward(scaler);
    if (get_rank() == 3) job.parameter.mutable_grad().fill_(INFINITY);
    EXPECT_EQ(scaler.step(job.optimizer), get_rank() < 2);
  });
}

TEST(ShardedGradScaler, SeveralOptimizersShareTheScale) {
  RunRanks(1, [] {
    init_process_group();
    Job first;
    Job second;
    ShardedGradScaler scaler({.init_scale = 8});
    first.Backward(scaler);
    second.Backward(scaler);
    second.parameter.mutable_grad().fill_(INFINITY);
    EXPECT_TRUE(scaler.step(first.optimizer));
    EXPECT_FALSE(scaler.step(second.optimizer));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 4);
  });
}

TEST(ShardedGradScaler, RefusesCallsOutOfOrder) {
  RunRanks(1, [] {
    init_process_group();
    Job job;
    ShardedGradScaler scaler;
    EXPECT_THAT(ThrownMessage([&] { scaler.unscale_(job.optimizer); }),
                HasSubstr("before any scale"));
    EXPECT_THAT(ThrownMessage([&] { scaler.update(); }),
                HasSubstr("before any scale"));
    job.Backward(scaler);
    EXPECT_THAT(ThrownMessage([&] { scaler.update(); }),
                HasSubstr("update was called before unscale_ or step"));
    scaler.unscale_(job.optimizer);
    EXPECT_THAT(ThrownMessage([&] { scaler.unscale_(job.optimizer); }),
                HasSubstr("since the last update"));
    scaler.step(job.optimizer);
    EXPECT_THAT(ThrownMessage([&] { scaler.step(job.optimizer); }),
                HasSubstr("since the last update"));
    EXPECT_THAT(ThrownMessage([&] { scaler.unscale_(job.optimizer); }),
                HasSubstr("after step"));
    scaler.update();
    scaler.update(16.0);
    EXPECT_EQ(scaler.get_scale(), 16);
  });
}

TEST(ShardedGradScaler, RefusesHalfGradientsAndOptionsOutOfRange) {
  RunRanks(1, [] {
    init_process_group();
    const at::Tensor half = at::ones({2}, at::kHalf).requires_grad_();
    torch::optim::SGD optimizer({half}, torch::optim::SGDOptions(1));
    ShardedGradScaler scaler;
    scaler.scale(half.sum()).backward();
    EXPECT_THROW(scaler.unscale_(optimizer), c10::ValueError);
  });
  EXPECT_THROW(ShardedGradScaler({.growth_factor = 1}), c10::ValueError);
  EXPECT_THROW(ShardedGradScaler({.backoff_factor = 1}), c10::ValueError);
  EXPECT_THROW(ShardedGradScaler({.init_scale = 0}), c10::ValueError);
  EXPECT_THROW(ShardedGradScaler({.growth_interval = 0}), c10::ValueError);
}

TEST(ShardedGradScaler, DisabledPassesThrough) {
  Job job;
  ShardedGradScaler scaler({.enabled = false});
  job.Backward(scaler);
  EXPECT_EQ(job.parameter.grad()[0].item<float>(), 2);
  scaler.unscale_(job.optimizer);
  EXPECT_TRUE(scaler.step(job.optimizer));
  scaler.update();
  EXPECT_EQ(job.parameter[0].item<float>(), -1);
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_FALSE(scaler.state_dict().has_value());
}

TEST(ShardedGradScaler, StateContinuesWhereItWas) {
  RunRanks(1, [] {
    init_process_group();
    Job job;
    ShardedGradScaler first({.init_scale = 4, .growth_interval = 3});
    for (int i = 0; i < 2; ++i) {
      job.Backward(first);
      first.step(job.optimizer);
      first.update();
    }
    const GradScalerState state = *first.state_dict();
    EXPECT_EQ(state.growth_tracker, 2);
    ShardedGradScaler second;
    second.load_state_dict(state);
    EXPECT_EQ(second.get_growth_interval(), 3);
    job.Backward(second);
    second.step(job.optimizer);
    second.update();
    EXPECT_EQ(second.get_scale(), 8);
    EXPECT_EQ(second.state_dict()->growth_tracker, 0);
    GradScalerState bad = state;
    bad.backoff_factor = 2;
    EXPECT_THROW(second.load_state_dict(bad), c10::ValueError);
  });
}

TEST(ShardedGradScaler, ScalesSeveralOutputs) {
  ShardedGradScaler scaler({.init_scale = 4});
  const std::vector<at::Tensor> scaled =
      scaler.scale({at::ones({2}), at::full({}, 3.0)});
  EXPECT_EQ(scaled[0][1].item<float>(), 4);
  EXPECT_EQ(scaled[1].item<float>(), 12);
}

}  // namespace
}  // namespace fsdp
