// SPDX-License-Identifier: Apache-2.0
// Muon over processes, against the same on whole matrices: bit for bit.
#include "fsdp/optim/muon.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/parameters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fsdp/optim/muon_reference.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"
#include "torch/serialize.h"
#include "torch/types.h"
#include "torch/utils.h"

namespace fsdp {
namespace {

using optim::Muon;
using optim::MuonOptions;
using optim::MuonParamState;
using ::testing::AllOf;
using ::testing::Contains;
using testing::Count;
using testing::CountingBackend;
using ::testing::HasSubstr;
using testing::ReferenceStep;
using testing::RunRanks;
using testing::StartRank;
using testing::ThrownMessage;
using torch::optim::OptimizerParamGroup;

// Parameters and nothing else.
struct BagImpl : torch::nn::Module {
  explicit BagImpl(const std::vector<std::vector<int64_t>>& shapes) {
    torch::manual_seed(7);
    for (size_t i = 0; i < shapes.size(); ++i) {
      register_parameter(absl::StrCat("p", i), torch::randn(shapes[i]));
    }
  }
};
TORCH_MODULE(Bag);

using Shapes = std::vector<std::vector<int64_t>>;

// Wide, tall, square, fewer rows than ranks, one row.
Shapes MatrixShapes() {
  return {{5, 30}, {31, 7}, {16, 16}, {2, 9}, {1, 6}, {45, 20}};
}

torch::Tensor Gradient(const std::vector<int64_t>& shape, int64_t step,
                       size_t index) {
  torch::manual_seed(static_cast<uint64_t>(1000 * step) + index);
  return torch::randn(shape);
}

// A whole parameter, and its matrices' rows.
struct Whole {
  torch::Tensor parameter;
  torch::Tensor momentum;
  int64_t rows_per_matrix;

  void Step(const torch::Tensor& grad, const MuonOptions& options) const {
    const int64_t columns = parameter.size(-1);
    const auto matrices = [&](const torch::Tensor& tensor) {
      return tensor.view({-1, rows_per_matrix, columns}).unbind();
    };
    const std::vector<torch::Tensor> parameters = matrices(parameter);
    const std::vector<torch::Tensor> buffers = matrices(momentum);
    const std::vector<torch::Tensor> grads = matrices(grad);
    for (size_t i = 0; i < parameters.size(); ++i) {
      ReferenceStep(parameters[i], buffers[i], grads[i], options);
    }
  }
};

std::vector<Whole> CopyWholes(const Bag& bag, const MuonOptions& options) {
  std::vector<Whole> wholes;
  for (const torch::Tensor& parameter : bag->parameters()) {
    const torch::Tensor copy = parameter.detach().clone();
    const int64_t rows = options.rows_per_matrix();
    wholes.push_back(
        {copy, torch::zeros_like(copy), rows == 0 ? copy.size(-2) : rows});
  }
  return wholes;
}

// Gives each parameter its part of the step's gradient.
void SetGradients(const Bag& bag, int64_t step) {
  const std::vector<torch::Tensor> parameters = bag->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<DTensor> sharded = dtensor_of(parameters[i]);
    torch::Tensor grad = Gradient(
        sharded.has_value() ? sharded->shape() : parameters[i].sizes().vec(),
        step, i);
    if (sharded.has_value()) {
      grad = distribute_tensor(grad, sharded->device_mesh(),
                               sharded->placements(), std::nullopt)
                 .to_local();
    }
    parameters[i].mutable_grad() = grad.clone();
  }
}

torch::Tensor WholeValue(const torch::Tensor& parameter,
                         const torch::Tensor& local) {
  const std::optional<DTensor> sharded = dtensor_of(parameter);
  return sharded.has_value() ? sharded->with_local(local.detach()).full_tensor()
                             : local.detach();
}

// Steps the sharded bag and whole copies of it.
void ExpectStepsAsWhole(const Bag& bag, const std::vector<Whole>& wholes,
                        const MuonOptions& options) {
  const std::vector<torch::Tensor> parameters = bag->parameters();
  Muon optimizer(parameters, options);
  for (int64_t step = 0; step < 3; ++step) {
    SetGradients(bag, step);
    optimizer.step();
    for (size_t i = 0; i < parameters.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("step ", step, ", parameter ", i));
      wholes[i].Step(Gradient(wholes[i].parameter.sizes().vec(), step, i),
                     options);
      const auto& state = static_cast<const MuonParamState&>(
          *optimizer.state().at(parameters[i].unsafeGetTensorImpl()));
      EXPECT_TRUE(
          torch::equal(WholeValue(parameters[i], state.momentum_buffer()),
                       wholes[i].momentum));
      EXPECT_TRUE(torch::equal(WholeValue(parameters[i], parameters[i]),
                               wholes[i].parameter));
    }
  }
}

std::vector<MuonOptions> Rules() {
  return {MuonOptions(0.1),
          MuonOptions(0.1).adjust_lr_fn("match_rms_adamw").nesterov(false),
          MuonOptions(0.1).adjust_lr_fn("spectral_unclamped").weight_decay(0),
          MuonOptions(0.1).adjust_lr_fn("original").momentum(0.8).ns_steps(3)};
}

TEST(Muon, StepsPlainMatricesAsTheReference) {
  for (const MuonOptions& options : Rules()) {
    const Bag bag(MatrixShapes());
    ExpectStepsAsWhole(bag, CopyWholes(bag, options), options);
  }
}

// As make_muon_table.py makes matrices and gradients.
torch::Tensor TableValues(const std::vector<int64_t>& shape, int64_t factor,
                          int64_t offset, int64_t modulus, double divisor) {
  const torch::Tensor index =
      torch::arange(shape[0] * shape[1], torch::kLong).view(shape);
  return ((factor * index + offset).remainder(modulus) - modulus / 2)
             .to(torch::kFloat) /
         divisor;
}

MuonOptions TableOptions(const nlohmann::json& row) {
  MuonOptions options(row.value("lr", 0.125));
  options.weight_decay(row.value("weight_decay", options.weight_decay()))
      .momentum(row.value("momentum", options.momentum()))
      .nesterov(row.value("nesterov", options.nesterov()))
      .ns_steps(row.value("ns_steps", options.ns_steps()));
  if (row.contains("adjust_lr_fn")) {
    options.adjust_lr_fn(row["adjust_lr_fn"].get<std::string>());
  }
  return options;
}

TEST(Muon, StepsAsPyTorchDid) {
  std::ifstream file("tests/golden/muon_table.json");
  const nlohmann::json table = nlohmann::json::parse(file);
  ASSERT_EQ(table["rows"].size(), 16u);
  for (const nlohmann::json& row : table["rows"]) {
    SCOPED_TRACE(absl::StrCat(row["shape"].dump(), row["options"].dump()));
    const std::vector<int64_t> shape = row["shape"];
    const torch::Tensor parameter =
        TableValues(shape, 5, 0, 13, 4).requires_grad_();
    const MuonOptions options = TableOptions(row["options"]);
    Muon optimizer({parameter}, options);
    for (int64_t step = 0; step < 3; ++step) {
      parameter.mutable_grad() = TableValues(shape, 7, 3 * step, 11, 8);
      optimizer.step();
    }
    const auto expect_near = [&](const torch::Tensor& actual, const char* key,
                                 double tolerance) {
      const std::vector<float> expected = row[key];
      const torch::Tensor wanted = torch::tensor(expected).view(shape);
      EXPECT_LE((actual - wanted).abs().max().item<double>(), tolerance) << key;
    };
    const auto& state = static_cast<const MuonParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    expect_near(state.momentum_buffer(), "momentum", 1e-6);
    // Other processors may round a sum to bfloat16 differently.
    expect_near(parameter.detach(), "parameter", 0.03 * options.lr());
  }
}

TEST(Muon, StepsShardsAsWholeMatrices) {
  for (const int world : {1, 2, 3, 4}) {
    RunRanks(world, [world] {
      StartRank();
      const DeviceMesh mesh = init_device_mesh("cpu", {world});
      for (const MuonOptions& options : Rules()) {
        const Bag bag(MatrixShapes());
        const std::vector<Whole> wholes = CopyWholes(bag, options);
        fully_shard(bag, {.mesh = mesh});
        ExpectStepsAsWhole(bag, wholes, options);
      }
    });
  }
}

TEST(Muon, StepsStacksAndFusedParametersMatrixByMatrix) {
  RunRanks(3, [] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {3});
    const auto step = [&mesh](const Shapes& shapes, const MuonOptions& options,
                              const FullyShardOptions& sharding) {
      const Bag bag(shapes);
      const std::vector<Whole> wholes = CopyWholes(bag, options);
      FullyShardOptions on_mesh = sharding;
      on_mesh.mesh = mesh;
      fully_shard(bag, on_mesh);
      ExpectStepsAsWhole(bag, wholes, options);
    };
    // Heads that lie whole on a rank, and heads that are cut.
    step({{20, 9}, {12, 9}}, MuonOptions(0.1).rows_per_matrix(4), {});
    // Experts: fewer than ranks, and more.
    step({{2, 6, 5}, {7, 4, 6}}, MuonOptions(0.1).stacked(true), {});
    // Both at once, as experts with fused gates.
    step({{2, 8, 5}}, MuonOptions(0.1).stacked(true).rows_per_matrix(4), {});
    FullyShardOptions by_columns;
    by_columns.shard_placement_fn = [](const torch::Tensor& /*parameter*/) {
      return Shard(1);
    };
    step({{2, 9, 5}, {3, 6, 4}}, MuonOptions(0.1).stacked(true), by_columns);
  });
}

TEST(Muon, StepsReplicatedAndParallelShards) {
  RunRanks(4, [] {
    StartRank();
    const MuonOptions options(0.1);
    {
      const Bag bag(MatrixShapes());
      const std::vector<Whole> wholes = CopyWholes(bag, options);
      fully_shard(bag,
                  {.mesh = init_device_mesh("cpu", {2, 2}, {"copy", "part"})});
      ExpectStepsAsWhole(bag, wholes, options);
    }
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    for (const bool also_sharded : {false, true}) {
      const Bag bag(Shapes{{8, 6}, {6, 10}, {5, 7}});
      const std::vector<Whole> wholes = CopyWholes(bag, options);
      Bag cut = bag;
      parallelize_parameters(
          *cut, mesh["tp"],
          {{"p0", {Shard(0)}}, {"p1", {Shard(1)}}, {"p2", {Replicate()}}});
      if (also_sharded) fully_shard(bag, {.mesh = mesh["dp"]});
      ExpectStepsAsWhole(bag, wholes, options);
    }
  });
}

TEST(Muon, StepsExpertsThatRanksDivide) {
  RunRanks(4, [] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"efsdp", "ep"});
    const MuonOptions options = MuonOptions(0.1).stacked(true);
    // More experts than ranks, and as many as one axis has.
    Bag experts(Shapes{{8, 6, 5}, {2, 4, 7}});
    const std::vector<Whole> wholes = CopyWholes(experts, options);
    parallelize_parameters(*experts, mesh["ep"],
                           {{"p0", {Shard(0)}}, {"p1", {Shard(0)}}});
    fully_shard(experts, {.mesh = mesh["efsdp"]});
    ExpectStepsAsWhole(experts, wholes, options);
  });
}

TEST(Muon, MovesNoMoreBytesThanGradientsHave) {
  RunRanks(4, [] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    CountingBackend& counts = Count(mesh.get_group());
    const Shapes shapes = {{5, 30}, {31, 7}, {16, 16}, {45, 20}};
    const Bag bag(shapes);
    fully_shard(bag, {.mesh = mesh});
    Muon optimizer(bag->parameters());
    SetGradients(bag, 0);
    counts.Reset();
    optimizer.step();
    EXPECT_EQ(counts.ToString(), "all_to_all 2");
    int64_t gradient_bytes = 0;
    for (const std::vector<int64_t>& shape : shapes) {
      gradient_bytes += 4 * shape[0] * shape[1];
    }
    const torch::Tensor bytes = torch::tensor(counts.bytes("all_to_all"));
    AllReduce(bytes, ReduceOp::kSum, mesh.get_group());
    EXPECT_EQ(bytes.item<int64_t>(), gradient_bytes);
  });
}

TEST(Muon, LeavesParametersWithoutGradientAlone) {
  RunRanks(2, [] {
    StartRank();
    const Bag bag(Shapes{{4, 3}, {6, 5}, {3, 3}});
    fully_shard(bag, {.mesh = init_device_mesh("cpu", {2})});
    const std::vector<torch::Tensor> parameters = bag->parameters();
    Muon optimizer(parameters);
    const auto step_without = [&](size_t index) {
      SetGradients(bag, 0);
      parameters[index].mutable_grad() = torch::Tensor();
      std::vector<torch::Tensor> before;
      for (const torch::Tensor& p : parameters) {
        before.push_back(p.detach().clone());
      }
      optimizer.step();
      for (size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(torch::equal(parameters[i], before[i]), i == index) << i;
      }
    };
    step_without(1);
    step_without(0);
    EXPECT_EQ(optimizer.state().size(), 3u);
  });
}

TEST(Muon, RefusesWhatIsNoMatrix) {
  const auto message = [](const torch::Tensor& parameter,
                          const MuonOptions& options = MuonOptions()) {
    return ThrownMessage([&] {
      Muon optimizer({torch::zeros({2, 2}), parameter}, options);
    });
  };
  EXPECT_THAT(message(torch::zeros({5})),
              AllOf(HasSubstr("parameter 1 of group 0 has shape [5] and 1"),
                    HasSubstr("MuonWithAdamW")));
  EXPECT_THAT(message(torch::zeros({})), HasSubstr("has shape [] and 0"));
  EXPECT_THAT(message(torch::zeros({2, 3, 4, 4})),
              HasSubstr("has shape [2, 3, 4, 4] and 4 dimensions"));
  EXPECT_THAT(message(torch::zeros({2, 3, 4})),
              AllOf(HasSubstr("has shape [2, 3, 4] and 3 dimensions"),
                    HasSubstr("MuonOptions::stacked(true)")));
  EXPECT_THAT(message(torch::zeros({2, 3}, torch::kInt)),
              HasSubstr("parameter 1 of group 0 is Int; Muon takes "
                        "floating-point parameters"));
  EXPECT_THAT(message(torch::zeros({3, 3}), MuonOptions().rows_per_matrix(2)),
              HasSubstr("has shape [3, 3] and 3 rows, which rows_per_matrix 2 "
                        "does not divide"));
}

TEST(Muon, RefusesOptionsOutOfRange) {
  const auto message = [](const MuonOptions& options) {
    return ThrownMessage([&] { Muon({torch::zeros({2, 2})}, options); });
  };
  EXPECT_THAT(message(MuonOptions().adjust_lr_fn("fast")),
              HasSubstr("adjust_lr_fn \"fast\" is not \"original\", "
                        "\"match_rms_adamw\" or \"spectral_unclamped\""));
  EXPECT_THAT(message(MuonOptions(-1)), HasSubstr("lr -1 is below 0"));
  EXPECT_THAT(message(MuonOptions().momentum(-0.5)),
              HasSubstr("momentum -0.5 is below 0"));
  EXPECT_THAT(message(MuonOptions().weight_decay(-2)),
              HasSubstr("weight_decay -2 is below 0"));
  EXPECT_THAT(message(MuonOptions().ns_steps(100)),
              HasSubstr("ns_steps 100 must be at least 0 and below 100"));
  EXPECT_THAT(message(MuonOptions().rows_per_matrix(-4)),
              HasSubstr("rows_per_matrix -4 is below 0"));
}

TEST(Muon, RefusesBadInputOnEveryRankBeforeACollective) {
  RunRanks(2, [] {
    StartRank();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Bag bag(Shapes{{4, 3}, {6}});
    fully_shard(bag, {.mesh = mesh});
    CountingBackend& counts = Count(mesh.get_group());
    const std::vector<torch::Tensor> parameters = bag->parameters();
    EXPECT_THAT(ThrownMessage([&] { Muon optimizer(parameters); }),
                HasSubstr("parameter 1 of group 0 has shape [6]"));
    Muon optimizer({parameters[0]});
    SetGradients(bag, 0);
    const torch::Tensor before = parameters[0].detach().clone();
    auto& options =
        static_cast<MuonOptions&>(optimizer.param_groups()[0].options());
    options.adjust_lr_fn("slow");
    EXPECT_THAT(ThrownMessage([&] { optimizer.step(); }),
                HasSubstr("adjust_lr_fn \"slow\" is not"));
    options.adjust_lr_fn("original");
    parameters[0].mutable_grad() =
        parameters[0].detach().to_sparse().to(torch::kFloat);
    EXPECT_THAT(ThrownMessage([&] { optimizer.step(); }),
                HasSubstr("Muon: a gradient is sparse"));
    EXPECT_EQ(counts.calls("all_to_all"), 0);
    EXPECT_TRUE(torch::equal(parameters[0], before));
    // The next step works.
    SetGradients(bag, 0);
    optimizer.step();
    EXPECT_FALSE(torch::equal(parameters[0], before));
  });
}

TEST(Muon, NamesTheStepWhenRanksHaveOtherGradients) {
  const std::vector<std::string> failures = testing::RankFailures(2, [] {
    StartRank();
    const Bag bag(Shapes{{4, 3}, {6, 2}});
    fully_shard(bag, {.mesh = init_device_mesh("cpu", {2})});
    Muon optimizer(bag->parameters());
    SetGradients(bag, 0);
    if (get_rank() == 1) bag->parameters()[1].mutable_grad() = torch::Tensor();
    optimizer.step();
  });
  // At least the rank that ends first.
  EXPECT_THAT(failures, Contains(AllOf(HasSubstr("exchange of 2 matrices"),
                                       HasSubstr("exchange of 1 matrices"))));
}

TEST(Muon, ContinuesFromASavedState) {
  const Bag first(Shapes{{5, 4}, {3, 8}});
  Muon original(first->parameters(),
                MuonOptions(0.3).adjust_lr_fn("match_rms_adamw"));
  SetGradients(first, 0);
  original.step();
  std::stringstream stream;
  torch::save(original, stream);
  const Bag second(Shapes{{5, 4}, {3, 8}});
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < 2; ++i) {
      second->parameters()[i].copy_(first->parameters()[i]);
    }
  }
  Muon resumed(second->parameters());
  torch::load(resumed, stream);
  for (const auto& [bag, optimizer] :
       {std::pair(first, &original), std::pair(second, &resumed)}) {
    SetGradients(bag, 1);
    optimizer->step();
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(torch::equal(first->parameters()[i], second->parameters()[i]));
  }
}

}  // namespace
}  // namespace fsdp
