// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/experts/expert_parallel.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/parallel/spmd/axis.h"
#include "fsdp/parallel/spmd/layout.h"
#include "fsdp/parallel/spmd/moves.h"
#include "fsdp/parallel/spmd/sharded.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "fsdp/parallel/tensor/styles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/experts/tiny_moe.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/optim/adamw.h"
#include "torch/optim/sgd.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

// PyTorch 2.11's losses for the same model on one rank and on four, with and
// without expert parallelism, which agree to 1e-14.
constexpr double kLosses[] = {5.58209860283569, 5.216913996506747,
                              5.2180827489590795, 3.823531670575503};
constexpr double kNorms[] = {15.413362057753936, 16.682859918722155,
                             13.867136249167277, 10.398708215252405};
const std::map<std::string, double>& FinalSums() {
  static const auto* const sums = new std::map<std::string, double>{
      {"embed.weight", 0.252088299707248},
      {"layers.0.moe.router.gate.weight", -1.9865930128829166},
      {"layers.0.moe.experts.w1", -0.7183647510753943},
      {"layers.0.moe.experts.w2", 1.26955824801515},
      {"layers.1.moe.experts.w3", -1.2449901889540653},
      {"layers.1.norm.weight", 15.933270425027917},
      {"head.weight", 0.22727284268588427}};
  return *sums;
}

// Four AdamW steps on this rank's share of the tokens.
void TrainLikePyTorch(TinyMoE& model) {
  torch::optim::AdamW optimizer(
      model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  const int64_t share = kTokens / get_world_size();
  for (int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        ComputeLoss(model, MakeBatch(step, share * get_rank(), share));
    loss.backward();
    at::Tensor mean = loss.detach().clone();
    AllReduce(mean, ReduceOp::kAvg, world_group());
    EXPECT_NEAR(mean.item<double>(), kLosses[step], 1e-12) << step;
    EXPECT_NEAR(clip_grad_norm_(parameters(*model), 1e9).item<double>(),
                kNorms[step], 1e-11)
        << step;
    optimizer.step();
  }
  std::map<std::string, double> sums;
  for (const auto& [name, parameter] : named_parameters(*model)) {
    sums[name] = parameter.full_tensor().sum().item<double>();
  }
  for (const auto& [name, sum] : FinalSums()) {
    EXPECT_NEAR(sums.at(name), sum, 1e-11) << name;
  }
}

void TrainLikePyTorchWith(int64_t ep) {
  RunRanks(4, [ep] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = ep}, "cpu");
    TinyMoE model;
    ShardMoE(model, dims);
    TrainLikePyTorch(model);
  });
}

TEST(ExpertParallel, WithoutExpertAxisTrainsAsPyTorch) {
  TrainLikePyTorchWith(1);
}
TEST(ExpertParallel, OnTwoRanksTrainsAsPyTorch) { TrainLikePyTorchWith(2); }
// Experts are then sharded over groups with one rank, which divide gradients
// once; PyTorch divides them twice.
TEST(ExpertParallel, OnFourRanksTrainsAsPyTorch) { TrainLikePyTorchWith(4); }

TEST(ExpertParallel, PlacementsMatchPyTorch) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 2}, "cpu");
    TinyMoE model;
    ShardMoE(model, dims);
    for (const auto& [name, parameter] : named_parameters(*model)) {
      const bool is_expert = name.find("experts") != std::string::npos;
      EXPECT_EQ(parameter.device_mesh(), is_expert
                                             ? dims.get_mesh({"efsdp", "ep"})
                                             : dims.get_mesh("fsdp"))
          << name;
      EXPECT_EQ(parameter.placements(),
                is_expert ? Placements({StridedShard(0, 2), fsdp::Shard(0)})
                          : Placements({fsdp::Shard(0)}))
          << name;
    }
    EXPECT_EQ(model->layer(0).moe->experts->w1.sizes(),
              torch::IntArrayRef({2, kHidden, kDim}));
  });
}

TEST(ExpertParallel, PlacementsWithReplicasAndHiddenParts) {
  RunRanks(8, [] {
    StartRank();
    const auto placements_of = [](const ParallelDims& dims, const char* name) {
      TinyMoE model;
      parallelize_experts(*model, dims);
      fully_shard_experts(*model, dims);
      const auto& experts = model->layer(1).moe->experts;
      return dtensor_of(std::string(name) == "w1" ? experts->w1 : experts->w2)
          ->placements();
    };
    const ParallelDims replicas =
        init_parallel_dims({.dp_replicate = 2, .ep = 2}, "cpu");
    EXPECT_EQ(placements_of(replicas, "w1"),
              Placements({Replicate(), StridedShard(0, 2), fsdp::Shard(0)}));
    // More shards than experts: dimension 1.
    const ParallelDims many = init_parallel_dims({.ep = 2}, "cpu");
    EXPECT_EQ(placements_of(many, "w1"),
              Placements({fsdp::Shard(1), fsdp::Shard(0)}));
    const ParallelDims parts =
        init_parallel_dims({.tp = 2, .ep = 4, .etp = 2}, "cpu");
    EXPECT_EQ(placements_of(parts, "w1"),
              Placements({StridedShard(0, 4), fsdp::Shard(0), fsdp::Shard(1)}));
    EXPECT_EQ(placements_of(parts, "w2"),
              Placements({StridedShard(0, 4), fsdp::Shard(0), fsdp::Shard(2)}));
  });
}

// Without ep: on dimension 0 while there are as many experts as shards.
TEST(ExpertParallel, ShardDimensionWithoutExpertAxis) {
  RunRanks(8, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({}, "cpu");
    for (const int64_t num_experts : {4, 8}) {
      MoEArgs args = PlainArgs();
      args.router.num_experts = num_experts;
      torch::nn::Sequential model(MoE(args, 16, 16));
      fully_shard_experts(*model, dims);
      EXPECT_EQ(dtensor_of(model->at<MoEImpl>(0).experts->w1)->placements(),
                Placements({fsdp::Shard(num_experts == 4 ? 1 : 0)}));
    }
  });
}

// A model with everything that a layer may have, against the whole batch on
// this rank. `plan` is for tensor parallelism outside the experts.
void TrainsAsOneProcess(const ParallelDegrees& degrees,
                        const ParallelizePlan& plan = {}) {
  const ParallelDims dims = init_parallel_dims(degrees, "cpu");
  MoEArgs args = PlainArgs();
  args.router.route_norm = true;
  args.num_shared_experts = 1;
  args.score_before_experts = true;
  args.load_balance_coeff = 0.05;
  TinyMoE model(args), whole(args);
  if (!plan.empty()) parallelize_module(model, dims.get_mesh("tp"), plan);
  ShardMoE(model, dims);
  torch::optim::SGD step(model->parameters(), 0.2);
  torch::optim::SGD whole_step(whole->parameters(), 0.2);
  // The tp ranks have the same tokens; the cp ranks divide theirs.
  const DeviceMesh loss_mesh = dims.get_mesh("loss");
  const auto cp = dims.get_optional_mesh("cp");
  const DeviceMesh batch_mesh = dims.get_mesh("batch");
  const int64_t share = kTokens / batch_mesh.size();
  for (int64_t i = 0; i < 3; ++i) {
    step.zero_grad();
    whole_step.zero_grad();
    Batch mine = MakeBatch(i, share * batch_mesh.get_local_rank(), share);
    if (cp.has_value()) {
      context_parallel(*cp, {&mine.tokens, &mine.targets}, {.seq_dim = 0});
    }
    ComputeLoss(model, mine).backward();
    ComputeLoss(whole, MakeBatch(i, 0, kTokens)).backward();
    const auto expected = whole->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-9, 1e-12))
          << name << " in step " << i;
    }
    update_expert_bias(*model, loss_mesh);
    update_expert_bias(*whole, {});
    EXPECT_TRUE(model->layer(1).moe->expert_bias.any().item<bool>());
    EXPECT_TRUE(model->layer(1).moe->expert_bias.equal(
        whole->layer(1).moe->expert_bias));
    step.step();
    whole_step.step();
  }
}

TEST(ExpertParallel, TrainsAsOneProcessOverAllKindsOfMeshes) {
  RunRanks(4, [] {
    StartRank();
    TrainsAsOneProcess({.ep = 2});
    TrainsAsOneProcess({.dp_replicate = 2, .ep = 2});
    TrainsAsOneProcess({.tp = 2});
    TrainsAsOneProcess({.tp = 2, .ep = 2});
    TrainsAsOneProcess({.tp = 2, .ep = 4});
    TrainsAsOneProcess({.tp = 2, .ep = 2, .etp = 2});
  });
}

TEST(ExpertParallel, WithTensorAndSequenceParallelism) {
  RunRanks(4, [] {
    StartRank();
    const ParallelizePlan plan = {
        {"layers.*.norm", SequenceParallel({.sequence_dim = 0})},
        {"layers.*.moe.shared_experts.w[13]", ColwiseParallel()},
        {"layers.*.moe.shared_experts.w2", RowwiseParallel()},
        {"head", ColwiseParallel()}};
    TrainsAsOneProcess({.tp = 2}, plan);
    TrainsAsOneProcess({.tp = 2, .ep = 2}, plan);
    TrainsAsOneProcess({.tp = 2, .ep = 2, .etp = 2}, plan);
  });
}

TEST(ExpertParallel, WithContextParallelism) {
  RunRanks(4, [] {
    StartRank();
    TrainsAsOneProcess({.cp = 2, .ep = 2});
    TrainsAsOneProcess({.cp = 2, .ep = 4});
  });
}

// Parts of a sequence under fully_shard are not gathered for the experts.
TEST(ExpertParallel, KeepsPartsOfASequenceInPlace) {
  RunRanks(2, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.cp = 2, .ep = 2}, "cpu");
    TinyMoE model;
    ShardMoE(model, dims);
    Batch batch = MakeBatch(0, 0, kTokens);
    context_parallel(dims.get_mesh("cp"), {&batch.tokens}, {.seq_dim = 0});
    const at::Tensor h = model->layer(0).moe(model->embed(batch.tokens));
    const spmd::Sharded* parts = spmd::AsSharded(h);
    ASSERT_NE(parts, nullptr);
    EXPECT_EQ(parts->local.sizes(), torch::IntArrayRef({kTokens / 2, kDim}));
    EXPECT_EQ(h.sizes(), torch::IntArrayRef({kTokens, kDim}));
  });
}

// The layers run again in backward, and exchange rows again.
TEST(ExpertParallel, WithRecomputedLayers) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 2}, "cpu");
    TinyMoE model, recomputed;
    ShardMoE(model, dims);
    ShardMoE(recomputed, dims);
    const Batch batch = MakeBatch(0, 6 * get_rank(), 6);
    ComputeLoss(model, batch).backward();
    at::Tensor h = recomputed->embed(batch.tokens);
    for (int64_t i = 0; i < kLayers; ++i) {
      MoELayerImpl& layer = recomputed->layer(i);
      h = checkpoint([&](const at::Tensor& x) { return layer.forward(x); }, h);
    }
    torch::nn::functional::cross_entropy(recomputed->head(h), batch.targets)
        .backward();
    const std::vector<DTensor> expected = parameters(*model);
    const std::vector<DTensor> actual = parameters(*recomputed);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(actual[i].grad()->to_local(),
                                  expected[i].grad()->to_local(), 1e-12, 1e-14))
          << i;
    }
  });
}

TEST(ExpertParallel, RowsTravelInTheExpertsPrecision) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 2}, "cpu");
    TinyMoE model;
    model->to(at::kFloat);
    parallelize_experts(*model, dims);
    FullyShardOptions options{.mesh = dims.get_mesh("fsdp")};
    options.mp_policy.param_dtype = at::kBFloat16;
    options.mp_policy.reduce_dtype = at::kFloat;
    fully_shard_experts(*model, dims, options);
    fully_shard(model, options);
    int64_t exchanges = 0;
    Count(dims.get_mesh("ep").get_group())
        .set_observer([&](const std::string& operation,
                          const std::vector<at::Tensor>& inputs) {
          if (operation != "all_to_all" || inputs[0].dim() != 2) return;
          ++exchanges;
          EXPECT_EQ(inputs[0].size(1), 2 * kDim);  // a row's bytes
        });
    const at::Tensor loss = ComputeLoss(model, MakeBatch(0, 6 * get_rank(), 6));
    loss.backward();
    EXPECT_EQ(exchanges, 4 * kLayers);
    TinyMoE whole;  // in float64
    EXPECT_NEAR(
        loss.item<double>(),
        ComputeLoss(whole, MakeBatch(0, 6 * get_rank(), 6)).item<double>(),
        0.1);
    for (const DTensor& parameter : parameters(*model)) {
      EXPECT_EQ(parameter.grad()->scalar_type(), at::kFloat);
    }
  });
}

// A step in two halves, with one reduction for the gradients.
TEST(ExpertParallel, AccumulatesGradients) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 2}, "cpu");
    TinyMoE model, whole;
    ShardMoE(model, dims);
    const auto loss_of = [](TinyMoE& m, int64_t half, int64_t first,
                            int64_t count) {
      return ComputeLoss(m, MakeBatch(half, first, count)) / 2;
    };
    {
      const NoSync accumulate(get_fsdp_module(*model));
      loss_of(model, 0, 6 * get_rank(), 6).backward();
    }
    loss_of(model, 1, 6 * get_rank(), 6).backward();
    for (const int64_t half : {0, 1}) {
      loss_of(whole, half, 0, kTokens).backward();
    }
    const auto expected = whole->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-9, 1e-12))
          << name;
    }
  });
}

// Between layers with activations that are cut along the sequence.
TEST(ExpertParallel, TakesActivationsInParts) {
  RunRanks(2, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.tp = 2, .ep = 2}, "cpu");
    torch::manual_seed(3);  // the same everywhere
    torch::nn::Sequential model(MoE(PlainArgs(), kDim, kHidden));
    parallelize_experts(*model, dims);
    MoEImpl& moe = model->at<MoEImpl>(0);
    const spmd::AxisPtr tp = spmd::InternAxis(dims.get_mesh("tp"));
    const spmd::Layout sequence = spmd::Layout::Shard(1);
    const spmd::Sizes sizes = {2, 6, kDim};
    const at::Tensor whole = torch::randn(sizes).requires_grad_();
    const at::Tensor expected = moe.forward(whole);
    expected.square().sum().backward();
    const at::Tensor gradient = whole.grad().clone();
    whole.mutable_grad().reset();

    const auto in_parts = [&] {
      return spmd::Wrap(
          spmd::Move(whole, spmd::Layout::Same(), sequence, sizes, tp),
          sequence, tp, sizes);
    };
    const at::Tensor gathered = moe.forward(in_parts());
    EXPECT_EQ(spmd::AsSharded(gathered), nullptr);
    EXPECT_TRUE(torch::allclose(gathered, expected, 1e-5, 1e-8));
    gathered.square().sum().backward();
    EXPECT_TRUE(torch::allclose(whole.grad(), gradient, 1e-4, 1e-7));
  });
}

TEST(ExpertParallel, AxesOfParallelDimsAreOrderedForActivations) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.cp = 2, .tp = 2}, "cpu");
    EXPECT_LT(spmd::InternAxis(dims.get_mesh("cp"))->level,
              spmd::InternAxis(dims.get_mesh("tp"))->level);
  });
}

TEST(ExpertParallel, CountsTheCollectivesInAStep) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 2}, "cpu");
    TinyMoE model;
    ShardMoE(model, dims);
    CountingBackend& tokens = Count(dims.get_mesh("ep").get_group());
    CountingBackend& experts = Count(dims.get_mesh("efsdp").get_group());
    CountingBackend& dense = Count(dims.get_mesh("fsdp").get_group());
    for (int i = 0; i < 2; ++i) {
      const at::Tensor loss =
          ComputeLoss(model, MakeBatch(0, 6 * get_rank(), 6));
      // For each layer: counts, rows, results.
      EXPECT_EQ(tokens.ToString(), "all_to_all 6");
      EXPECT_EQ(experts.ToString(), "all_gather 2");
      EXPECT_EQ(dense.ToString(), "all_gather 3");
      loss.backward();
      EXPECT_EQ(tokens.ToString(), "all_to_all 10");
      EXPECT_EQ(experts.ToString(), "all_gather 4, reduce_scatter 2");
      EXPECT_EQ(dense.ToString(), "all_gather 5, reduce_scatter 3");
      for (CountingBackend* each : {&tokens, &experts, &dense}) each->Reset();
    }
  });
}

// All tokens go to one expert, and one rank has no tokens at all.
TEST(ExpertParallel, RanksAndExpertsWithoutTokens) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 4}, "cpu");
    MoEArgs args = PlainArgs();
    args.router.top_k = 1;
    TinyMoE model(args), whole(args);
    for (TinyMoE* each : {&model, &whole}) {
      const torch::NoGradGuard no_grad;
      at::Tensor gate = (*each)->layer(0).moe->router->gate->weight;
      gate.zero_();  // all scores are equal: one expert wins everywhere
    }
    ShardMoE(model, dims);
    const int64_t rank = get_rank();
    const Batch batch = MakeBatch(0, 0, 9);
    // 3, 0, 3 and 3 tokens; the whole loss is a third of three means.
    const int64_t first = rank == 0 ? 0 : 3 * (rank - 1);
    const at::Tensor mine = batch.tokens.narrow(0, first, rank == 1 ? 0 : 3);
    const at::Tensor logits = model(mine);
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(
            logits, batch.targets.narrow(0, first, mine.size(0)),
            torch::nn::functional::CrossEntropyFuncOptions().reduction(
                torch::kSum)) *
        4.0 / 9.0;
    loss.backward();
    ComputeLoss(whole, batch).backward();
    const auto expected = whole->named_parameters();
    for (const auto& [name, parameter] : named_parameters(*model)) {
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  expected[name].grad(), 1e-9, 1e-12))
          << name;
    }
  });
}

TEST(ExpertParallel, NamesTheLayerThatDoesNotDivide) {
  RunRanks(4, [] {
    StartRank();
    const ParallelDims dims = init_parallel_dims({.ep = 4}, "cpu");
    MoEArgs odd = PlainArgs();
    odd.router.num_experts = 6;
    TinyMoE model;
    model->layers->push_back(MoELayer(odd));
    const auto cut = [&] { parallelize_experts(*model, dims); };
    EXPECT_THROW(cut(), c10::ValueError);
    EXPECT_THAT(ThrownMessage(cut),
                HasSubstr("layers.2.moe.experts: num_experts (6) "
                          "is not divisible by ep (4)"));
    // The layers before it are as they were.
    EXPECT_EQ(model->layer(0).moe->experts->w1.size(0), 4);
    const ParallelDims parts =
        init_parallel_dims({.dp_shard = 1, .tp = 4}, "cpu");
    torch::nn::Sequential hidden(MoE(PlainArgs(), 16, 6));
    EXPECT_THAT(ThrownMessage([&] { parallelize_experts(*hidden, parts); }),
                HasSubstr("0.experts: hidden_dim (6) is not divisible by tp "
                          "(4)"));
  });
}

TEST(UpdateExpertBias, RaisesExpertsWithFewTokens) {
  MoEArgs args = PlainArgs();
  args.load_balance_coeff = 0.1;
  torch::nn::Sequential model(MoE(args, 6, 5), MoE(PlainArgs(), 6, 5));
  MoEImpl& moe = model->at<MoEImpl>(0);
  moe.tokens_per_expert.copy_(torch::tensor({8.0, 4.0, 4.0, 0.0}));
  update_expert_bias(*model, {});
  EXPECT_TRUE(
      torch::allclose(moe.expert_bias, torch::tensor({-0.1, 0.0, 0.0, 0.1})));
  EXPECT_FALSE(moe.tokens_per_expert.any().item<bool>());
  moe.tokens_per_expert.copy_(torch::tensor({9.0, 1.0, 1.0, 1.0}));
  update_expert_bias(*model, {});
  // Signs -1, 1, 1, 1, less their mean.
  EXPECT_TRUE(torch::allclose(moe.expert_bias,
                              torch::tensor({-0.25, 0.05, 0.05, 0.15})));
}

}  // namespace
}  // namespace fsdp::testing
