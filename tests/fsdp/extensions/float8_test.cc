// SPDX-License-Identifier: Apache-2.0

#include "fsdp/extensions/float8.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "fsdp/extensions/nf4.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp.h"
#include "tests/fsdp/operator_counts.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace fsdp {
namespace {

using testing::BatchOf;
using testing::Count;
using testing::CountingBackend;
using testing::Mlp;
using testing::RunRanks;
using testing::TrainSharded;

TEST(Float8, ErrorIsWithinTheBound) {
  torch::manual_seed(1);
  for (const double magnitude : {1e-6, 1.0, 1e4}) {
    const at::Tensor x =
        at::cat({at::randn({5000}), at::linspace(-0.01, 0.01, 1001)}) *
        magnitude;
    const at::Tensor scale = float8_scale(x.abs().max());
    const at::Tensor y =
        dequantize_float8(quantize_float8(x, scale), scale, at::kFloat);
    const double s = scale.item<double>();
    const at::Tensor bound =
        (x.abs() / 16).clamp_min(s / 1024) * (1 + 1e-5) + 1e-30;
    EXPECT_TRUE(((y - x).abs() <= bound).all().item<bool>()) << magnitude;
  }
}

TEST(Float8, ZeroAndTheLargestAreExact) {
  const at::Tensor x = at::tensor({0.0F, 3.5F, -3.5F, 0.0F});
  const at::Tensor scale = float8_scale(x.abs().max());
  const at::Tensor quantized = quantize_float8(x, scale);
  EXPECT_EQ(quantized.scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(quantized.element_size(), 1);
  EXPECT_TRUE(dequantize_float8(quantized, scale, at::kFloat).equal(x));
  const at::Tensor zeros = at::zeros({3});
  const at::Tensor none = float8_scale(zeros.abs().max());
  EXPECT_TRUE(dequantize_float8(quantize_float8(zeros, none), none, at::kHalf)
                  .equal(zeros.to(at::kHalf)));
}

TEST(Float8, InfinityAndNanMakeNan) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    const at::Tensor x = at::tensor({1.0F, bad});
    const at::Tensor scale = float8_scale(x.abs().max());
    EXPECT_TRUE(dequantize_float8(quantize_float8(x, scale), scale, at::kFloat)
                    .isnan()
                    .all()
                    .item<bool>())
        << bad;
  }
}

TEST(Nf4, ErrorIsWithinTheBound) {
  torch::manual_seed(1);
  const at::Tensor x = at::cat({at::randn({640}), at::linspace(-7, 7, 1000)});
  const Nf4Tensor quantized = quantize_nf4(x);
  EXPECT_EQ(quantized.absmax.numel(), 26);
  EXPECT_EQ(quantized.codes.numel(), 26 * 32);
  const at::Tensor y = dequantize_nf4(quantized, x.numel(), at::kFloat);
  const at::Tensor bound = quantized.absmax.repeat_interleave(kNf4BlockElements)
                               .narrow(0, 0, x.numel()) *
                           0.152;
  EXPECT_TRUE(((y - x).abs() <= bound).all().item<bool>());
  // Quantizing again changes nothing.
  EXPECT_TRUE(dequantize_nf4(quantize_nf4(y), x.numel(), at::kFloat).equal(y));
}

TEST(Nf4, PicksTheNearestCode) {
  // One block with the largest magnitude 1, so codes are the values.
  at::Tensor x = at::linspace(-1, 1, kNf4BlockElements);
  const at::Tensor y =
      dequantize_nf4(quantize_nf4(x), kNf4BlockElements, at::kFloat);
  const at::Tensor codes = dequantize_nf4(
      {.codes = at::arange(32).remainder(8).to(at::kByte) * 34 + 1,
       .absmax = at::full({1}, 1.0F)},
      16, at::kFloat);
  for (int64_t i = 0; i < 16; i += 2) {
    EXPECT_LT(codes[i].item<float>(), codes[i + 1].item<float>());
  }
  const at::Tensor nearest = (x.unsqueeze(1) - codes).abs().amin({1});
  EXPECT_TRUE((y - x).abs().allclose(nearest, 0, 1e-6));
}

TEST(Nf4, MakesItsTablesOnce) {
  const at::Tensor x = at::randn({130});
  quantize_nf4(x);
  const testing::OperatorCounts operators;
  quantize_nf4(x);
  // Only x is divided; making the boundaries between codes would divide again.
  EXPECT_EQ(operators.calls("aten::div"), 1);
}

TEST(Nf4, ZeroAndTheLargestAreExact) {
  const at::Tensor x = at::tensor({0.0F, 5.0F, -5.0F});
  EXPECT_TRUE(dequantize_nf4(quantize_nf4(x), 3, at::kFloat).equal(x));
  const at::Tensor zeros = at::zeros({70});
  EXPECT_TRUE(dequantize_nf4(quantize_nf4(zeros), 70, at::kFloat).equal(zeros));
  EXPECT_EQ(
      dequantize_nf4(quantize_nf4(at::zeros({0, 3})), 0, at::kFloat).numel(),
      0);
}

TEST(Nf4, InfinityAndNanMakeTheirBlockNan) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    at::Tensor x = at::full({128}, 2.0F);
    x[3] = bad;
    const at::Tensor y = dequantize_nf4(quantize_nf4(x), 128, at::kFloat);
    EXPECT_TRUE(y.narrow(0, 0, 64).isnan().all().item<bool>()) << bad;
    EXPECT_TRUE((y.narrow(0, 64, 64) == 2).all().item<bool>()) << bad;
  }
}

TEST(Nf4, RefusesBlocksThatDoNotFit) {
  const Nf4Tensor quantized = quantize_nf4(at::zeros({64}));
  EXPECT_THROW(dequantize_nf4(quantized, 65, at::kFloat), c10::ValueError);
  EXPECT_THROW(nf4_all_gather(at::zeros({4}).requires_grad_()),
               c10::ValueError);
  EXPECT_THROW(nf4_all_gather(at::zeros({4}, at::kLong)), c10::ValueError);
}

// Uses an extension as a group does: pads the shard of `whole`, gathers each
// tensor from the extension, and lets the extension fill the parameter's
// memory.
at::Tensor GatherThrough(const AllGatherExtension& extension,
                         const at::Tensor& whole, int64_t dim,
                         at::ScalarType dtype, const DeviceMesh& mesh) {
  const int64_t world = mesh.size();
  const int64_t rows = (whole.size(dim) + world - 1) / world;
  std::vector<int64_t> padded = whole.sizes().vec();
  padded[dim] = rows * world;
  at::Tensor all = at::zeros(padded, whole.options());
  all.narrow(dim, 0, whole.size(dim)).copy_(whole);
  const at::Tensor shard =
      all.narrow(dim, rows * mesh.get_local_rank(), rows).contiguous();
  at::Tensor maximum;
  if (extension.local_maximum) {
    maximum = extension.local_maximum(shard);
    AllReduce(maximum, ReduceOp::kMax, mesh.get_group());
  }
  const AllGatherExtension::Inputs inputs =
      extension.pre_all_gather(shard, {.mesh = mesh,
                                       .size = whole.sizes().vec(),
                                       .param_dtype = dtype,
                                       .maximum = maximum});
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& input : inputs.tensors) {
    EXPECT_TRUE(input.is_contiguous());
    outputs.push_back(AllGather(input, mesh.get_group()).flatten(0, 1));
  }
  const at::Tensor dst = at::full(padded, -1.0, whole.options().dtype(dtype));
  extension.post_all_gather(outputs, inputs.metadata, dst);
  EXPECT_EQ(dst.narrow(dim, whole.size(dim), padded[dim] - whole.size(dim))
                .count_nonzero()
                .item<int64_t>(),
            0);
  return dst.narrow(dim, 0, whole.size(dim));
}

TEST(Float8, GathersWithOneScaleForAllRanks) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{7, 6}, std::vector<int64_t>{1, 6}}) {
      torch::manual_seed(2);
      const at::Tensor whole = at::randn(shape);
      const at::Tensor scale = float8_scale(whole.abs().max());
      const at::Tensor expected = dequantize_float8(
          quantize_float8(whole, scale), scale, at::kBFloat16);
      for (const int64_t dim : {0, 1}) {
        EXPECT_TRUE(
            GatherThrough(float8_all_gather(), whole, dim, at::kBFloat16, mesh)
                .equal(expected));
      }
    }
  });
}

TEST(Float8, OneRanksNanIsSeenByAll) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    at::Tensor whole = at::full({4}, 1.0F);
    whole[3] = NAN;
    EXPECT_TRUE(GatherThrough(float8_all_gather(), whole, 0, at::kFloat, mesh)
                    .isnan()
                    .all()
                    .item<bool>());
  });
}

TEST(Nf4, GathersShardsWithAShortLastBlock) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    torch::manual_seed(2);
    const at::Tensor whole = at::randn({9, 30});
    for (const int64_t dim : {0, 1}) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& shard : whole.chunk(3, dim)) {
        parts.push_back(
            dequantize_nf4(quantize_nf4(shard), shard.numel(), at::kFloat)
                .view(shard.sizes()));
      }
      EXPECT_TRUE(
          GatherThrough(nf4_all_gather(whole), whole, dim, at::kFloat, mesh)
              .equal(at::cat(parts, dim)));
    }
  });
}

FullyShardOptions OptionsFor(const DeviceMesh& mesh, bool is_nf4,
                             bool reshard_after_forward) {
  FullyShardOptions options;
  options.mesh = mesh;
  options.reshard_after_forward = reshard_after_forward;
  options.all_gather_extension_fn =
      [is_nf4](
          const std::string& name,
          const at::Tensor& parameter) -> std::optional<AllGatherExtension> {
    if (name.find("weight") == std::string::npos) return std::nullopt;
    return is_nf4 ? nf4_all_gather(parameter) : float8_all_gather();
  };
  return options;
}

// A layer that computes with float8 weights and keeps the originals.
at::Tensor RoundTripFloat8(const at::Tensor& weight) {
  const at::Tensor scale = float8_scale(weight.abs().max());
  return dequantize_float8(quantize_float8(weight, scale), scale, at::kFloat);
}

// One process: each step computes with rounded weights, and gives the gradient
// to the original weights.
std::vector<double> TrainWithRoundedWeights(Mlp& model, int steps) {
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    Mlp rounded;
    {
      const at::NoGradGuard no_grad;
      const auto masters = model->named_parameters();
      for (auto& item : rounded->named_parameters()) {
        const at::Tensor& master = masters[item.key()];
        item.value().copy_(master.dim() == 2 ? RoundTripFloat8(master)
                                             : master);
      }
    }
    const at::Tensor loss = rounded->forward(BatchOf(step)).square().mean();
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    const auto grads = rounded->named_parameters();
    for (auto& item : model->named_parameters()) {
      item.value().sub_(grads[item.key()].grad(), 0.5);
    }
  }
  return losses;
}

void CheckFloat8Training(int world_size, bool reshard_after_forward) {
  RunRanks(world_size, [&] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()});
    Mlp reference;
    Mlp model;
    const FullyShardOptions options =
        OptionsFor(mesh, /*is_nf4=*/false, reshard_after_forward);
    fully_shard(model->up, options);
    fully_shard(model, options);
    const std::vector<double> expected = TrainWithRoundedWeights(reference, 5);
    const std::vector<double> losses = TrainSharded(model, 5);
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], 1e-4) << step;
    }
    EXPECT_LT(losses.back(), losses.front());
    // The parameters in training are not rounded.
    const auto wanted = reference->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*model)) {
      EXPECT_TRUE(parameter.full_tensor().allclose(wanted[name], 1e-3, 1e-4))
          << name;
    }
  });
}

TEST(Float8, TrainsAsRoundedWeightsDo) { CheckFloat8Training(2, true); }
TEST(Float8, TrainsWithUnevenShards) { CheckFloat8Training(3, true); }
TEST(Float8, TrainsWithoutReshardingAfterForward) {
  CheckFloat8Training(2, false);
}

TEST(Float8, OneRankComputesWithRoundedWeightsAsManyDo) {
  for (const int world_size : {1, 2}) {
    RunRanks(world_size, [] {
      init_process_group();
      const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()});
      Mlp rounded;
      Mlp model;
      const at::Tensor exact = model->forward(BatchOf(0));
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& weight : rounded->parameters()) {
          if (weight.dim() == 2) weight.copy_(RoundTripFloat8(weight));
        }
      }
      fully_shard(model, OptionsFor(mesh, /*is_nf4=*/false, true));
      const at::Tensor out = model->forward(BatchOf(0));
      EXPECT_TRUE(out.equal(rounded->forward(BatchOf(0))));
      EXPECT_FALSE(out.allclose(exact, 1e-4, 1e-4));
    });
  }
}

TEST(Float8, GathersAByteAnElementAndComputesInTheParamDtype) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    CountingBackend& counts = Count(mesh.get_group());
    Mlp model;
    FullyShardOptions options = OptionsFor(mesh, false, true);
    options.mp_policy.param_dtype = at::kBFloat16;
    fully_shard(model, options);
    counts.Reset();
    const at::Tensor out = model->forward(BatchOf(0));
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    EXPECT_EQ(counts.calls("all_gather"), 1);
    // 34 and 3 rows; two-byte biases, and some alignment.
    const int64_t weight_bytes = 34 * 30 + 3 * 67;
    EXPECT_GE(counts.bytes("all_gather"), weight_bytes + 2 * (34 + 3));
    EXPECT_LE(counts.bytes("all_gather"), weight_bytes + 2 * (34 + 3) + 64);
    EXPECT_EQ(counts.calls("all_reduce"), 1);  // both weights' scales
    EXPECT_EQ(counts.bytes("all_reduce"), 2 * 4);
    out.to(at::kFloat).square().mean().backward();
    for (const auto& [name, parameter] : fsdp::named_parameters(*model)) {
      ASSERT_TRUE(parameter.grad().has_value()) << name;
      EXPECT_EQ(parameter.grad()->scalar_type(), at::kFloat);
      EXPECT_GT(parameter.grad()->norm().item<double>(), 0) << name;
    }
  });
}

// QLoRA in small: frozen weights in four bits, biases train.
TEST(Nf4, FreezesTheBaseAndTrainsTheRest) {
  RunRanks(3, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    CountingBackend& counts = Count(mesh.get_group());
    Mlp reference;
    Mlp model;
    for (const Mlp& m : {reference, model}) {
      m->up->weight.requires_grad_(false);
      m->down->weight.requires_grad_(false);
    }
    {
      // Each rank rounds the rows that it has, padded to the first rank's size.
      const at::NoGradGuard no_grad;
      for (const at::Tensor& weight :
           {reference->up->weight, reference->down->weight}) {
        for (const at::Tensor& shard : weight.chunk(3)) {
          shard.copy_(
              dequantize_nf4(quantize_nf4(shard), shard.numel(), at::kFloat)
                  .view(shard.sizes()));
        }
      }
    }
    fully_shard(model, OptionsFor(mesh, /*is_nf4=*/true, true));
    counts.Reset();
    const std::vector<double> losses = TrainSharded(model, 4);
    // 23 rows of 30 are 11 blocks, 2 of 67 are 3: 36 bytes each.
    EXPECT_GE(counts.bytes("all_gather") / counts.calls("all_gather"),
              14 * 36 + 4 * (23 + 2));
    EXPECT_LE(counts.bytes("all_gather") / counts.calls("all_gather"),
              14 * 36 + 4 * (23 + 2) + 96);
    torch::optim::SGD optimizer(reference->parameters(),
                                torch::optim::SGDOptions(0.5));
    for (int64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = reference->forward(BatchOf(step)).square().mean();
      loss.backward();
      optimizer.step();
      EXPECT_NEAR(losses[static_cast<size_t>(step)], loss.item<double>(), 1e-5)
          << step;
    }
    const Mlp untouched;
    const DTensor weight = *dtensor_of(model->named_parameters()["up.weight"]);
    EXPECT_TRUE(weight.full_tensor().equal(untouched->up->weight));
  });
}

TEST(Nf4, BlocksFollowTheWholeTensor) {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({9, 30});  // 5 blocks, the last one short
  const at::Tensor packed = pack_nf4(x);
  EXPECT_EQ(packed.scalar_type(), at::kByte);
  EXPECT_EQ(packed.sizes(), (at::IntArrayRef{5, kNf4BlockBytes}));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    EXPECT_TRUE(
        unpack_nf4(packed, x.sizes(), dtype)
            .equal(dequantize_nf4(quantize_nf4(x), 270, dtype).view({9, 30})));
  }
  EXPECT_EQ(pack_nf4(at::empty({9, 30}, at::kMeta)).sizes(), packed.sizes());
  EXPECT_EQ(unpack_nf4(pack_nf4(at::zeros({0})), {0}, at::kFloat).numel(), 0);
  EXPECT_THAT(
      [&] {
        unpack_nf4(packed, {9, 40}, at::kFloat);
      },
      ::testing::Throws<c10::ValueError>());
  EXPECT_THAT(
      [&] {
        unpack_nf4(packed.t(), {9, 30}, at::kFloat);
      },
      ::testing::Throws<c10::ValueError>());
}

}  // namespace
}  // namespace fsdp
