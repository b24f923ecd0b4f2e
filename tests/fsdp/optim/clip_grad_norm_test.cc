// SPDX-License-Identifier: Apache-2.0

#include "fsdp/optim/clip_grad_norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linalg_vector_norm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/operator_counts.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"

namespace fsdp {
namespace {

using testing::Count;
using testing::CountingBackend;
using ::testing::HasSubstr;
using testing::OperatorCounts;
using testing::RunRanks;
using testing::ThrownMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A parameter of zeros. The gradient is this rank's part of `grad`.
DTensor ParameterWithGrad(const at::Tensor& grad, const DeviceMesh& mesh,
                          const Placements& placements) {
  const DTensor placed = distribute_tensor(grad, mesh, placements, {});
  DTensor parameter =
      placed.with_local(at::zeros_like(placed.to_local()).requires_grad_());
  parameter.to_local().mutable_grad() = placed.to_local().clone();
  return parameter;
}

double NormOfAll(const std::vector<at::Tensor>& tensors, double p) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& t : tensors) flat.push_back(t.reshape({-1}));
  return at::linalg_vector_norm(at::cat(flat), p).item<double>();
}

std::vector<at::Tensor> Gradients() {
  torch::manual_seed(1);
  return {at::randn({5, 3}), at::randn({1, 4}), at::randn({8}),
          at::zeros({0, 2})};
}

TEST(ClipGradNorm, ShardedNormEqualsTheWholeNorm) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    CountingBackend& counts = Count(mesh.get_group());
    const std::vector<at::Tensor> grads = Gradients();
    for (const double p : {1.0, 2.0, 3.5, kInfinity}) {
      std::vector<DTensor> parameters;
      for (const at::Tensor& grad : grads) {
        parameters.push_back(ParameterWithGrad(grad, mesh, {Shard(0)}));
      }
      counts.Reset();
      const at::Tensor norm = clip_grad_norm_(parameters, 1.0, p);
      EXPECT_EQ(counts.ToString(), "all_reduce 1");
      EXPECT_EQ(norm.dim(), 0);
      EXPECT_NEAR(norm.item<double>(), NormOfAll(grads, p), 1e-4) << p;
      EXPECT_GT(norm.item<double>(), 1);
      const double factor = 1.0 / (NormOfAll(grads, p) + 1e-6);
      for (size_t i = 0; i < grads.size(); ++i) {
        EXPECT_TRUE(parameters[i].grad()->full_tensor().allclose(
            grads[i] * factor, 1e-4, 1e-6));
      }
      std::vector<DTensor> clipped;
      for (const DTensor& parameter : parameters) {
        clipped.push_back(*parameter.grad());
      }
      EXPECT_NEAR(get_total_norm(clipped, p).item<double>(), 1, 1e-4);
    }
  });
}

TEST(ClipGradNorm, LeavesSmallGradientsAsTheyAre) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor grad = at::full({4}, 0.1);
    const std::vector<DTensor> parameters = {
        ParameterWithGrad(grad, mesh, {Shard(0)})};
    EXPECT_NEAR(clip_grad_norm_(parameters, 1.0).item<double>(), 0.2, 1e-6);
    EXPECT_TRUE(parameters[0].grad()->full_tensor().equal(grad));
  });
}

TEST(ClipGradNorm, CountsReplicasOnceOnTwoAxes) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const DeviceMesh dp = mesh["dp"];
    CountingBackend& on_dp = Count(mesh.get_group("dp"));
    CountingBackend& on_tp = Count(mesh.get_group("tp"));
    const std::vector<at::Tensor> grads = Gradients();
    for (const double p : {2.0, kInfinity}) {
      const std::vector<DTensor> parameters = {
          ParameterWithGrad(grads[0], mesh, {Replicate(), Shard(0)}),
          ParameterWithGrad(grads[1], mesh, {Shard(1), Replicate()}),
          ParameterWithGrad(grads[2], mesh, {StridedShard(0, 2), Shard(0)}),
          ParameterWithGrad(grads[0], mesh, {Replicate(), Replicate()}),
          ParameterWithGrad(grads[2], dp, {Shard(0)})};
      on_dp.Reset();
      on_tp.Reset();
      at::Tensor norm;
      {
        const OperatorCounts operators;
        norm = clip_grad_norm_(parameters, 0.5, p);
        // On a GPU, an index would be copied there, and a value read, and the
        // host would wait.
        EXPECT_EQ(operators.calls("aten::index_select"), 0);
        EXPECT_EQ(operators.calls("aten::index_copy_"), 0);
        EXPECT_EQ(operators.calls("aten::_local_scalar_dense"), 0);
        EXPECT_GT(operators.calls("aten::stack"), 0);
      }
      EXPECT_EQ(on_dp.ToString(), "all_reduce 1");
      EXPECT_EQ(on_tp.ToString(), "all_reduce 1");
      EXPECT_NEAR(
          norm.item<double>(),
          NormOfAll({grads[0], grads[1], grads[2], grads[0], grads[2]}, p),
          1e-4);
      EXPECT_TRUE(parameters[1].grad()->full_tensor().allclose(
          grads[1] * (0.5 / (norm + 1e-6)), 1e-4));
    }
  });
}

TEST(ClipGradNorm, AbsentGradientsCountAsZero) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor grad = at::full({2}, 3.0);
    const std::vector<DTensor> parameters = {
        ParameterWithGrad(grad, mesh, {Shard(0)}),
        ParameterWithGrad(grad, mesh, {Shard(0)})};
    parameters[0].to_local().mutable_grad() = at::Tensor();
    EXPECT_NEAR(clip_grad_norm_(parameters, 1.0).item<double>(), std::sqrt(18),
                1e-5);
    // On one rank only.
    if (get_rank() == 1) parameters[1].to_local().mutable_grad().reset();
    EXPECT_NEAR(clip_grad_norm_(parameters, 100.0).item<double>(),
                1 / std::sqrt(2), 1e-5);
    parameters[1].to_local().mutable_grad().reset();
    EXPECT_EQ(clip_grad_norm_(parameters, 1.0).item<double>(), 0);
    EXPECT_EQ(clip_grad_norm_(std::vector<DTensor>(), 1.0).item<double>(), 0);
  });
}

TEST(ClipGradNorm, NonFiniteIsAnErrorOnEveryRank) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    for (const double bad : {kInfinity, std::nan("")}) {
      for (const double p : {2.0, kInfinity}) {
        at::Tensor grad = at::ones({3});
        grad[1] = bad;
        const std::vector<DTensor> parameters = {
            ParameterWithGrad(grad, mesh, {Shard(0)})};
        EXPECT_THAT(ThrownMessage([&] {
                      clip_grad_norm_(parameters, 1.0, p,
                                      /*error_if_nonfinite=*/true);
                    }),
                    HasSubstr("cannot be clipped"));
        // Nothing was scaled.
        EXPECT_TRUE(parameters[0].grad()->full_tensor().equal(grad) ||
                    std::isnan(bad));
        EXPECT_FALSE(
            std::isfinite(clip_grad_norm_(parameters, 1.0, p).item<double>()));
      }
    }
  });
}

TEST(ClipGradNorm, MixesDtypes) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const std::vector<DTensor> parameters = {
        ParameterWithGrad(at::full({2}, 3.0, at::kBFloat16), mesh, {Shard(0)}),
        ParameterWithGrad(at::full({2}, 4.0, at::kFloat), mesh, {Shard(0)}),
        ParameterWithGrad(at::full({3}, 5.0, at::kDouble), mesh, {Shard(0)})};
    const at::Tensor norm = clip_grad_norm_(parameters, 1.0);
    EXPECT_EQ(norm.scalar_type(), at::kDouble);
    EXPECT_NEAR(norm.item<double>(), std::sqrt(9 * 2 + 16 * 2 + 25 * 3), 1e-6);
    EXPECT_EQ(parameters[0].grad()->scalar_type(), at::kBFloat16);
    EXPECT_NEAR(parameters[2].grad()->norm().item<double>(),
                std::sqrt(75) / norm.item<double>(), 1e-5);
  });
}

TEST(ClipGradNorm, TotalNormReducesPartials) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor values = at::full({4}, 1.0);
    EXPECT_NEAR(
        get_total_norm({DTensor::from_local(values, mesh, {Partial()}),
                        DTensor::from_local(values, mesh, {Replicate()})})
            .item<double>(),
        std::sqrt(4 * 4 + 4), 1e-5);
  });
}

TEST(ClipGradNorm, ScalesByANormFromElsewhere) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const at::Tensor grad = at::full({4}, 2.0);
    const std::vector<DTensor> parameters = {
        ParameterWithGrad(grad, mesh, {Shard(0)})};
    clip_grads_with_norm_(parameters, 1.0, at::full({}, 8.0));
    EXPECT_TRUE(
        parameters[0].grad()->full_tensor().allclose(at::full({4}, 0.25)));
    EXPECT_THROW(clip_grads_with_norm_(parameters, -1.0, at::full({}, 8.0)),
                 c10::ValueError);
    EXPECT_THROW(clip_grad_norm_(parameters, 1.0, 0), c10::ValueError);
  });
}

TEST(ClipGradNorm, PlainTensorsCountAsTheyAre) {
  RunRanks(2, [] {
    init_process_group();
    const at::Tensor plain = at::zeros({4}).requires_grad_();
    plain.mutable_grad() = at::full({4}, 2.0);
    const at::Tensor frozen = at::zeros({4});
    const std::vector<at::Tensor> parameters = {plain, frozen};
    EXPECT_NEAR(clip_grad_norm_(parameters, 1.0).item<double>(), 4, 1e-5);
    EXPECT_TRUE(plain.grad().allclose(at::full({4}, 0.5)));
  });
}

TEST(ClipGradNorm, ShardedModulesNormEqualsTheWholeModules) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    torch::manual_seed(1);
    torch::nn::Linear whole(5, 3);
    torch::manual_seed(1);
    torch::nn::Linear sharded(5, 3);
    fully_shard(sharded, {.mesh = mesh});
    const at::Tensor x = at::randn({4, 5}) * 10;
    for (const double p : {1.0, 2.0, kInfinity}) {
      for (torch::nn::Linear* model : {&whole, &sharded}) {
        (*model)->zero_grad();
        (*model)->forward(x).square().sum().backward();
      }
      const double expected =
          NormOfAll({whole->weight.grad(), whole->bias.grad()}, p);
      CountingBackend& counts = Count(mesh.get_group());
      counts.Reset();
      const at::Tensor norm = clip_grad_norm_(sharded->parameters(), 1.0, p);
      EXPECT_EQ(counts.ToString(), "all_reduce 1");
      EXPECT_NEAR(norm.item<double>(), expected, 1e-4 * expected);
      std::vector<DTensor> clipped;
      for (const DTensor& parameter : parameters(*sharded)) {
        clipped.push_back(*parameter.grad());
      }
      EXPECT_NEAR(get_total_norm(clipped, p).item<double>(), 1, 1e-4);
    }
  });
}

// Two stages on two ranks each, which shard their own gradients.
TEST(ClipGradNorm, StagesOfAPipelineHaveOneNorm) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"pp", "dp"});
    const std::vector<at::Tensor> all = Gradients();
    const bool is_first = mesh.get_local_rank("pp") == 0;
    for (const double p : {1.0, 2.0, 3.5, kInfinity}) {
      // The second stage has one parameter, or none.
      for (const size_t num_second : {1, 0}) {
        std::vector<DTensor> mine;
        for (size_t i = 0; i < all.size(); ++i) {
          if ((i < all.size() - num_second) != is_first) continue;
          // A large one, so that the stages differ.
          mine.push_back(ParameterWithGrad(all[i] * 3, mesh["dp"], {Shard(0)}));
        }
        CountingBackend& counts = Count(mesh.get_group("pp"));
        counts.Reset();
        const double expected = 3 * NormOfAll(all, p);
        const at::Tensor norm =
            clip_grad_norm_(mine, 1.0, p, false, mesh["pp"]);
        EXPECT_NEAR(norm.item<double>(), expected, 1e-5 * expected);
        EXPECT_EQ(counts.ToString(), "all_reduce 1");
        for (const DTensor& parameter : mine) {
          const double rest = parameter.grad()->full_tensor().numel() == 0
                                  ? 0
                                  : parameter.grad()->norm(p).item<double>();
          EXPECT_LE(rest, 1 + 1e-5);
        }
        if (is_first) {
          EXPECT_TRUE(mine[0].grad()->full_tensor().allclose(
              all[0] * 3 / expected, 1e-4));
        }
      }
    }
  });
}

TEST(ClipGradNorm, NonFiniteGradientIsAnErrorOnAllStages) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh pp = init_device_mesh("cpu", {2}, {"pp"});
    const at::Tensor parameter = at::zeros({4}).requires_grad_();
    parameter.mutable_grad() =
        at::full({4}, get_rank() == 1 ? std::nan("") : 2.0);
    const std::vector<at::Tensor> mine = {parameter};
    for (const double p : {2.0, kInfinity}) {
      EXPECT_THAT(
          ThrownMessage([&] { clip_grad_norm_(mine, 1.0, p, true, pp); }),
          HasSubstr("of the gradients is nan"));
    }
  });
}

}  // namespace
}  // namespace fsdp
