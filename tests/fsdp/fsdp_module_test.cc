// The observable effect of every method of FSDPModule: on the collectives of a
// step and on the gradients that it leaves.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/collectives.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/forward.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ModulePtr = std::shared_ptr<torch::nn::Module>;
using Log = std::vector<std::string>;

// Layers of one size between two Linears that belong to the root; says what
// it computes.
struct TowerImpl : torch::nn::Module {
  explicit TowerImpl(int64_t num_layers = 3) {
    stem = register_module("stem", torch::nn::Linear(4, 6));
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back(
          register_module(std::to_string(i), torch::nn::Linear(6, 6)));
    }
    top = register_module("top", torch::nn::Linear(6, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = stem(x);
    for (size_t i = 0; i < layers.size(); ++i) {
      h = torch::tanh(layers[i](h));
      if (log == nullptr) continue;
      const std::string name = std::to_string(i);
      log->push_back("forward " + name);
      if (!h.requires_grad()) continue;
      h.register_hook([this, name](const torch::Tensor&) {
        log->push_back("backward " + name);
      });
    }
    return top(h);
  }
  torch::nn::Linear stem{nullptr}, top{nullptr};
  std::vector<torch::nn::Linear> layers;
  Log* log = nullptr;
};
TORCH_MODULE(Tower);

// The same weights everywhere.
Tower MakeTower(int64_t num_layers = 3) {
  torch::manual_seed(11);
  return Tower(num_layers);
}

// Differs from rank to rank.
torch::Tensor InputOf(int64_t rank) {
  return torch::linspace(-1, 1, 8).view({2, 4}) * (1 + 0.5 * rank);
}

torch::Tensor LossOf(Tower& tower, const torch::Tensor& x) {
  return tower->forward(x).pow(2).sum();
}

// The gradient of each parameter without sharding, summed over `ranks`.
std::map<std::string, torch::Tensor> SummedGradients(
    const std::vector<int64_t>& ranks) {
  Tower reference = MakeTower();
  for (const int64_t rank : ranks) LossOf(reference, InputOf(rank)).backward();
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& item : reference->named_parameters()) {
    gradients[item.key()] = item.value().grad();
  }
  return gradients;
}

void ExpectGradients(const Tower& tower, double scale,
                     const std::vector<int64_t>& ranks) {
  const auto want = SummedGradients(ranks);
  for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
    ASSERT_TRUE(parameter.grad().has_value()) << name;
    EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                want.at(name) * scale, 1e-4, 1e-6))
        << name;
  }
}

void ExpectNoGradients(const torch::nn::Module& module) {
  for (const auto& [name, parameter] : fsdp::named_parameters(module)) {
    EXPECT_FALSE(parameter.grad().has_value()) << name;
  }
}

void ClearGradients(torch::nn::Module& module) {
  for (auto& p : module.parameters()) p.mutable_grad() = torch::Tensor();
}

struct Sharded {
  Tower tower{nullptr};
  FSDPModule root;
  std::vector<FSDPModule> layers;
  CountingBackend* counts;

  Log Counts() const {
    Log counted;
    if (const int64_t n = counts->calls("all_gather")) {
      counted.push_back("gathers " + std::to_string(n));
    }
    if (const int64_t n = counts->calls("reduce_scatter")) {
      counted.push_back("reduces " + std::to_string(n));
    }
    counts->Reset();
    return counted;
  }
  void Forward() { loss = LossOf(tower, InputOf(get_rank())); }
  void Backward() { loss.backward(); }
  torch::Tensor loss;
};

Sharded ShardTower(const FullyShardOptions& options = {},
                   int64_t num_layers = 3) {
  Tower tower = MakeTower(num_layers);
  std::vector<FSDPModule> layers;
  for (const auto& layer : tower->layers) {
    layers.push_back(fully_shard(layer, options));
  }
  const FSDPModule root = fully_shard(tower, options);
  const ProcessGroup group = root.state()->group()->config().shard_group;
  return {tower, root, layers, &Count(group), {}};
}

void InitRank() {
  at::set_num_threads(1);
  init_process_group();
}

DeviceMesh HybridMesh() {
  return init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
}

TEST(Unshard, GathersOwnParametersAndKeepsThem) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    const Tower whole = MakeTower();
    s.root.unshard();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[0].is_unsharded());
    EXPECT_TRUE(s.tower->stem->weight.equal(whole->stem->weight));
    s.root.unshard();
    EXPECT_THAT(s.Counts(), IsEmpty());
    s.layers[2].unshard();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    // Forward uses the gathered parameters, and does not drop them before they
    // are used.
    s.Forward();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 2"));
    EXPECT_FALSE(s.layers[2].is_unsharded());
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Unshard, AsyncIsAwaitedOnceOrByForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    UnshardHandle handle = s.layers[0].unshard(/*async=*/true);
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 1"));
    EXPECT_FALSE(s.layers[0].is_unsharded());
    handle.wait();
    EXPECT_TRUE(s.layers[0].is_unsharded());
    handle.wait();
    UnshardHandle left = s.layers[1].unshard(/*async=*/true);
    reset_step_report(*s.tower);
    s.Forward();
    EXPECT_THAT(s.Counts(), ElementsAre("gathers 3"));
    EXPECT_EQ(step_report(*s.tower).num_prefetched, 1);
    // The gather that the handle belongs to is over.
    left.wait();
    EXPECT_FALSE(s.layers[1].is_unsharded());
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Unshard, WithoutParametersIsNothing) {
  RunRanks(2, [] {
    InitRank();
    torch::nn::Sequential model(torch::nn::Linear(4, 4),
                                torch::nn::Linear(4, 4));
    for (const auto& child : model->children()) fully_shard(child);
    FSDPModule root = fully_shard(model);
    CountingBackend& counts =
        Count(fsdp_modules(*model)[1].state()->group()->config().shard_group);
    root.unshard().wait();
    UnshardHandle handle = root.unshard(/*async=*/true);
    handle.wait();
    root.reshard();
    EXPECT_FALSE(root.is_unsharded());
    EXPECT_EQ(counts.ToString(), "");
    model->forward(torch::ones({1, 4})).sum().backward();
    // Nothing comes after the last layer in forward: it stays for backward.
    EXPECT_EQ(counts.ToString(), "all_gather 3, reduce_scatter 2");
  });
}

TEST(Reshard, FreesOwnParametersAlone) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.unshard();
    s.layers[0].unshard();
    const uint64_t both = step_report(*s.tower).unsharded_bytes;
    s.root.reshard();
    EXPECT_FALSE(s.root.is_unsharded());
    EXPECT_TRUE(s.layers[0].is_unsharded());
    EXPECT_THROW(s.tower->stem->weight.storage().data(), c10::Error);
    EXPECT_EQ(s.tower->stem->weight.sizes(), (std::vector<int64_t>{6, 4}));
    // 6 x 6 weights and 6 biases.
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 42 * sizeof(float));
    // 6 x 4 and 4 x 6 weights, 6 and 4 biases.
    EXPECT_EQ(both, (42 + 58) * sizeof(float));
    s.root.reshard();
    s.layers[0].reshard();
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    // A gather under way is dropped.
    UnshardHandle handle = s.layers[1].unshard(/*async=*/true);
    s.layers[1].reshard();
    handle.wait();
    EXPECT_FALSE(s.layers[1].is_unsharded());
    EXPECT_EQ(step_report(*s.tower).unsharded_bytes, 0U);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

// Gathers in forward and backward after both were prepared; through the
// boundary, so that the end of the root's forward is seen.
Log GathersOf(Sharded& s) {
  s.counts->Reset();
  torch::Tensor loss = fsdp::forward(s.tower, InputOf(get_rank())).pow(2).sum();
  Log log = {s.counts->ToString()};
  s.counts->Reset();
  loss.backward();
  log.push_back(s.counts->ToString());
  ExpectGradients(s.tower, 0.5, {0, 1});
  ClearGradients(*s.tower);
  return log;
}

TEST(SetReshardAfterForward, ChangesWhatBackwardGathers) {
  RunRanks(2, [] {
    InitRank();
    const std::string forward = "all_gather 4";
    for (const bool recurse : {true, false}) {
      Sharded to_true = ShardTower({.reshard_after_forward = false});
      EXPECT_THAT(GathersOf(to_true), ElementsAre(forward, "reduce_scatter 4"));
      to_true.root.set_reshard_after_forward(true, recurse);
      EXPECT_THAT(
          GathersOf(to_true),
          ElementsAre(forward, recurse ? "all_gather 4, reduce_scatter 4"
                                       : "all_gather 1, reduce_scatter 4"));
      Sharded to_false = ShardTower({.reshard_after_forward = true});
      EXPECT_THAT(GathersOf(to_false),
                  ElementsAre(forward, "all_gather 4, reduce_scatter 4"));
      to_false.root.set_reshard_after_forward(false, recurse);
      EXPECT_THAT(
          GathersOf(to_false),
          ElementsAre(forward, recurse ? "reduce_scatter 4"
                                       : "all_gather 3, reduce_scatter 4"));
    }
    Sharded unset = ShardTower();
    EXPECT_THAT(GathersOf(unset),
                ElementsAre(forward, "all_gather 3, reduce_scatter 4"));
    // Only one layer.
    unset.layers[1].set_reshard_after_forward(false);
    EXPECT_THAT(GathersOf(unset),
                ElementsAre(forward, "all_gather 2, reduce_scatter 4"));
  });
}

TEST(SetReshardAfterBackward, KeepsParametersForTheNextForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = false});
    s.root.set_reshard_after_backward(false);
    s.Forward();
    s.Backward();
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_TRUE(s.layers[1].is_unsharded());
    s.counts->Reset();
    s.Forward();
    EXPECT_THAT(s.Counts(), IsEmpty());
    s.root.set_reshard_after_backward(true);
    s.Backward();
    EXPECT_FALSE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[1].is_unsharded());
    s.root.set_reshard_after_backward(false, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_TRUE(s.root.is_unsharded());
    EXPECT_FALSE(s.layers[1].is_unsharded());
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(SetRequiresGradientSync, KeepsGradientsUnreduced) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_requires_gradient_sync(false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
    ExpectNoGradients(*s.tower);
    s.root.set_requires_gradient_sync(true);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(SetRequiresGradientSync, NotRecursiveIsOwnGroupAlone) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.root.set_requires_gradient_sync(false, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 3);
    ExpectNoGradients(*s.tower->stem);
    EXPECT_TRUE(parameters(*s.tower->layers[0])[0].grad().has_value());
    ClearGradients(*s.tower);
    s.root.set_requires_gradient_sync(true, /*recurse=*/false);
    s.Forward();
    s.Backward();
    // The root's gradients have both steps, the layers' only one.
    const auto want = SummedGradients({0, 1});
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      const double scale = name[0] == 's' || name[0] == 't' ? 1 : 0.5;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want.at(name) * scale, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(NoSync, IsAScopeWithoutReduction) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    {
      const NoSync scope(s.root);
      s.Forward();
      s.Backward();
    }
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 0);
    ExpectNoGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(SetRequiresAllReduce, PostponesTheSecondHalf) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    CountingBackend& replicas =
        Count(s.root.state()->group()->config().replicate_group);
    s.root.set_requires_all_reduce(false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 4);
    EXPECT_EQ(replicas.ToString(), "");
    ExpectNoGradients(*s.tower);
    s.root.set_requires_all_reduce(true, /*recurse=*/false);
    s.Forward();
    s.Backward();
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 8);
    EXPECT_EQ(replicas.ToString(), "all_reduce 1");
    EXPECT_TRUE(parameters(*s.tower->stem)[0].grad().has_value());
    ExpectNoGradients(*s.tower->layers[0]);
    s.root.set_requires_all_reduce(true);
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(replicas.ToString(), "all_reduce 5");
    // The layers' gradients have three steps, the root's only the one after it
    // was cleared.
    const auto want = SummedGradients({0, 1, 2, 3});
    for (const auto& [name, parameter] : fsdp::named_parameters(*s.tower)) {
      const double scale = name[0] == 's' || name[0] == 't' ? 0.25 : 0.75;
      EXPECT_TRUE(torch::allclose(parameter.grad()->full_tensor(),
                                  want.at(name) * scale, 1e-4, 1e-6))
          << name;
    }
  });
}

TEST(SetIsLastBackward, KeepsTheOrderForTheNext) {
  RunRanks(2, [] {
    InitRank();
    const auto prefetched_in_second = [](bool first_is_last) {
      Sharded s = ShardTower();
      const torch::Tensor x = InputOf(get_rank());
      const torch::Tensor first = LossOf(s.tower, x);
      const torch::Tensor second = LossOf(s.tower, x);
      s.root.set_is_last_backward(first_is_last);
      first.backward();
      s.root.set_is_last_backward(true);
      reset_step_report(*s.tower);
      second.backward();
      ExpectGradients(s.tower, 1, {0, 1});
      return step_report(*s.tower).num_prefetched;
    };
    EXPECT_EQ(prefetched_in_second(true), 0);
    EXPECT_EQ(prefetched_in_second(false), 3);
  });
}

// Custom collectives that do the same as the default ones, and log it.
void LogCollectives(Sharded& s, Log* log) {
  std::vector<FSDPModule> modules = fsdp_modules(*s.tower);
  for (FSDPModule& module : modules) {
    const std::string name = module.is_root() ? "root" : module.name();
    module.set_custom_all_gather([log, name](at::Tensor output,
                                             at::Tensor input,
                                             c10d::ProcessGroup& group) {
      log->push_back("gather " + name);
      group.getBackend(c10::kCPU)->_allgather_base(output, input)->wait();
    });
    module.set_custom_reduce_scatter([log, name](at::Tensor output,
                                                 at::Tensor input,
                                                 c10d::ProcessGroup& group) {
      log->push_back("reduce " + name);
      c10d::ReduceScatterOptions options;
      options.reduceOp = c10d::ReduceOp::AVG;
      group.getBackend(c10::kCPU)
          ->_reduce_scatter_base(output, input, options)
          ->wait();
    });
  }
  s.tower->log = log;
}

const Log kDefaultForward = {"gather root", "gather 0", "forward 0", "gather 1",
                             "forward 1",   "gather 2", "forward 2"};
const Log kDefaultBackward = {
    "gather 2", "backward 2", "gather 1",   "reduce 2", "backward 1",
    "gather 0", "reduce 1",   "backward 0", "reduce 0", "reduce root"};

TEST(Prefetch, IsBackwardsByDefault) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    for (int step = 0; step < 2; ++step) {
      log.clear();
      s.Forward();
      EXPECT_EQ(log, kDefaultForward);
      log.clear();
      s.Backward();
      EXPECT_EQ(log, kDefaultBackward);
    }
    ExpectGradients(s.tower, 1, {0, 1});
  });
}

TEST(Prefetch, ForwardListsAreGatheredInTheirOrder) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    s.layers[0].set_modules_to_forward_prefetch({s.layers[1]});
    s.layers[1].set_modules_to_forward_prefetch({s.layers[2]});
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "gather 1", "forward 0",
                        "gather 2", "forward 1", "forward 2"}));
    log.clear();
    s.Backward();
    EXPECT_EQ(log, kDefaultBackward);
    s.layers[0].set_modules_to_forward_prefetch({s.layers[2], s.layers[1]});
    s.layers[1].set_modules_to_forward_prefetch({s.layers[2]});
    log.clear();
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "gather 2", "gather 1",
                        "forward 0", "forward 1", "forward 2"}));
    s.Backward();
    // The lists are removed again.
    for (FSDPModule& layer : s.layers)
      layer.set_modules_to_forward_prefetch({});
    log.clear();
    s.Forward();
    EXPECT_EQ(log, kDefaultForward);
    s.Backward();
    ExpectGradients(s.tower, 1.5, {0, 1});
  });
}

TEST(Prefetch, BackwardListsReplaceTheDefault) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Sharded s = ShardTower();
    LogCollectives(s, &log);
    s.root.set_modules_to_backward_prefetch({s.layers[2], s.layers[1]});
    s.layers[2].set_modules_to_backward_prefetch({s.layers[1], s.layers[0]});
    s.Forward();
    EXPECT_EQ(log, kDefaultForward);
    log.clear();
    s.Backward();
    EXPECT_EQ(log, Log({"gather 2", "gather 1", "backward 2", "gather 0",
                        "reduce 2", "backward 1", "reduce 1", "backward 0",
                        "reduce 0", "reduce root"}));
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(CustomCollectives, ReplaceTheBackends) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    std::vector<int64_t> numels;
    // Without the backend's: both ranks have the same weights.
    s.layers[1].set_custom_all_gather(
        [&](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          numels = {output.numel(), input.numel(), group.getSize()};
          std::vector<at::Tensor> parts{at::zeros_like(input),
                                        at::zeros_like(input)};
          std::vector<std::vector<at::Tensor>> outputs{parts};
          std::vector<at::Tensor> inputs{input};
          group.getBackend(c10::kCPU)->allgather(outputs, inputs)->wait();
          output.copy_(at::cat(parts));
        });
    s.layers[1].set_custom_reduce_scatter(
        [&](at::Tensor output, at::Tensor, c10d::ProcessGroup&) {
          output.fill_(7);
        });
    s.Forward();
    s.Backward();
    ASSERT_EQ(numels.size(), 3U);
    EXPECT_EQ(numels[0], 2 * numels[1]);
    EXPECT_EQ(numels[2], 2);
    EXPECT_EQ(s.counts->calls("reduce_scatter"), 3);
    const DTensor weight = parameters(*s.tower->layers[1])[0];
    EXPECT_TRUE(weight.grad()->to_local().equal(
        torch::full_like(weight.to_local(), 7)));
    // Unset again.
    s.layers[1].set_custom_all_gather({});
    s.layers[1].set_custom_reduce_scatter({});
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

// Does Gloo's work, but allocates memory itself and records the operators.
class AllocatingBackend : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  at::Tensor allocateTensor(
      long size,  // NOLINT(google-runtime-int): the signature of c10d
      at::TensorOptions options) override {
    ++num_allocations;
    return at::empty({size}, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    ops.push_back(opts.reduceOp);
    return CountingBackend::_reduce_scatter_base(output, input, opts);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& opts) override {
    ops.push_back(opts.reduceOp);
    return CountingBackend::allreduce(tensors, opts);
  }

  int num_allocations = 0;
  std::vector<c10d::ReduceOp::RedOpType> ops;
};

AllocatingBackend& Allocate(const ProcessGroup& group) {
  const auto backend =
      c10::make_intrusive<AllocatingBackend>(group->getBackend(c10::kCPU));
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(backend));
  return *backend;
}

TEST(AllocateFromProcessGroup, IsForTheBackendsOwnCollectives) {
  RunRanks(2, [] {
    InitRank();
    Tower tower = MakeTower();
    FSDPModule root = fully_shard(tower);
    const CustomAllGather gather = [](at::Tensor, at::Tensor,
                                      c10d::ProcessGroup&) {};
    root.set_custom_all_gather(gather);
    const std::vector<std::string> says = {"process group", "custom",
                                           "exclude one another"};
    ExpectError<c10::Error>(
        [&] { root.set_allocate_memory_from_process_group_for_comm(true); },
        says);
    root.set_custom_all_gather({});
    root.set_custom_reduce_scatter(gather);
    ExpectError<c10::Error>(
        [&] { root.set_allocate_memory_from_process_group_for_comm(true); },
        says);
    root.set_custom_reduce_scatter({});
    root.set_allocate_memory_from_process_group_for_comm(true);
    // Gloo does not allocate memory.
    ExpectError<c10::Error>([&] { LossOf(tower, InputOf(0)); },
                            {"gloo does not support allocateTensor"});
    AllocatingBackend& backend =
        Allocate(root.state()->group()->config().shard_group);
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 3);  // gathered; gradients; their sum
    ExpectGradients(tower, 0.5, {0, 1});
    // As in PyTorch, a custom collective may be set afterwards, and replaces
    // its half.
    root.set_custom_all_gather(
        [](at::Tensor output, at::Tensor input, c10d::ProcessGroup& group) {
          AllGatherInto(output, input, group)->wait();
        });
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 5);
    ExpectGradients(tower, 1, {0, 1});
    root.set_custom_all_gather({});
    root.set_allocate_memory_from_process_group_for_comm(false);
    LossOf(tower, InputOf(get_rank())).backward();
    EXPECT_EQ(backend.num_allocations, 5);
    ExpectGradients(tower, 1.5, {0, 1});
  });
}

TEST(ForceSum, IsTheOnlyOperatorOnTheWire) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    const FsdpParamGroup::Config& config = s.root.state()->group()->config();
    AllocatingBackend& shards = Allocate(config.shard_group);
    AllocatingBackend& replicas = Allocate(config.replicate_group);
    using Op = c10d::ReduceOp;
    s.Forward();
    s.Backward();
    EXPECT_THAT(shards.ops, ElementsAre(Op::AVG, Op::AVG, Op::AVG, Op::AVG));
    EXPECT_THAT(replicas.ops, ElementsAre(Op::AVG, Op::AVG, Op::AVG, Op::AVG));
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
    ClearGradients(*s.tower);
    shards.ops.clear();
    replicas.ops.clear();
    for (FSDPModule& layer : s.layers) {
      layer.set_force_sum_reduction_for_comms(true);
    }
    s.Forward();
    s.Backward();
    // The root reduces last and was not told.
    EXPECT_THAT(shards.ops, ElementsAre(Op::SUM, Op::SUM, Op::SUM, Op::AVG));
    EXPECT_THAT(replicas.ops, ElementsAre(Op::SUM, Op::SUM, Op::SUM, Op::AVG));
    ExpectGradients(s.tower, 0.25, {0, 1, 2, 3});
  });
}

TEST(AllReduceHook, SeesReducedGradientsOfTheGroup) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    std::vector<torch::Tensor> seen;
    s.layers[0].set_all_reduce_hook([&](at::Tensor flat) {
      seen.push_back(flat.clone());
      flat.mul_(3);
    });
    s.Forward();
    s.Backward();
    ASSERT_EQ(seen.size(), 1U);
    // Three rows of the weight and three biases of this rank.
    EXPECT_EQ(seen[0].sizes(), (std::vector<int64_t>{21}));
    const auto want = SummedGradients({0, 1});
    const int64_t begin = 3 * get_rank();
    EXPECT_TRUE(torch::allclose(seen[0].narrow(0, 0, 18).view({3, 6}),
                                want.at("0.weight").narrow(0, begin, 3) / 2,
                                1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[1].grad()->full_tensor(),
        want.at("0.bias") * 1.5, 1e-4, 1e-6));
    // One axis may say in which stream.
    const c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
    s.layers[0].set_all_reduce_hook([&](at::Tensor flat) { flat.mul_(5); },
                                    stream);
    ClearGradients(*s.tower);
    s.Forward();
    s.Backward();
    EXPECT_EQ(seen.size(), 1U);
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[1].grad()->full_tensor(),
        want.at("0.bias") * 2.5, 1e-4, 1e-6));
  });
}

TEST(AllReduceHook, OfHybridRunsAfterTheAllReduce) {
  RunRanks(4, [] {
    InitRank();
    Sharded s = ShardTower({.mesh = HybridMesh()});
    const c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
    ExpectError<c10::ValueError>(
        [&] { s.layers[0].set_all_reduce_hook([](at::Tensor) {}, stream); },
        {"stream cannot be set when using native HSDP"});
    torch::Tensor seen;
    s.layers[0].set_all_reduce_hook(
        [&](at::Tensor flat) { seen = flat.clone(); });
    s.Forward();
    s.Backward();
    const auto want = SummedGradients({0, 1, 2, 3});
    const int64_t begin = 3 * (get_rank() % 2);
    EXPECT_TRUE(torch::allclose(seen.narrow(0, 18, 3),
                                want.at("0.bias").narrow(0, begin, 3) / 4, 1e-4,
                                1e-6));
  });
}

TEST(AllReduceHook, RunsForOneRank) {
  if (!is_initialized()) init_process_group();
  Tower tower = MakeTower();
  FSDPModule root = fully_shard(tower);
  root.set_all_reduce_hook([](at::Tensor flat) { flat.neg_(); });
  LossOf(tower, InputOf(0)).backward();
  ExpectGradients(tower, -1, {0});
}

TEST(DivideFactor, ReplacesTheNumberOfRanks) {
  RunRanks(2, [] {
    InitRank();
    for (const double factor : {1.0, 2.0, 5.0}) {
      Sharded s = ShardTower();
      for (FSDPModule& module : fsdp_modules(*s.tower)) {
        if (factor == 5) {
          module.set_reduce_scatter_divide_factor(factor);
        } else {
          module.set_gradient_divide_factor(factor);
        }
      }
      s.Forward();
      s.Backward();
      ExpectGradients(s.tower, 1 / factor, {0, 1});
    }
    // Set for only one group, with sums on the wire.
    Sharded s = ShardTower();
    s.layers[1].set_gradient_divide_factor(8);
    s.layers[1].set_force_sum_reduction_for_comms(true);
    s.Forward();
    s.Backward();
    const auto want = SummedGradients({0, 1});
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[1])[0].grad()->full_tensor(),
        want.at("1.weight") / 8, 1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(
        parameters(*s.tower->layers[0])[0].grad()->full_tensor(),
        want.at("0.weight") / 2, 1e-4, 1e-6));
  });
}

TEST(DivideFactor, OfOneRankAndBadOnes) {
  if (!is_initialized()) init_process_group();
  for (const double factor : {1.0, 2.0}) {
    Tower tower = MakeTower();
    FSDPModule root = fully_shard(tower);
    root.set_gradient_divide_factor(factor);
    LossOf(tower, InputOf(0)).backward();
    ExpectGradients(tower, 1 / factor, {0});
  }
  Tower tower = MakeTower();
  FSDPModule root = fully_shard(tower);
  for (const double bad : {0.0, -2.0, std::nan("")}) {
    ExpectError<c10::ValueError>([&] { root.set_gradient_divide_factor(bad); },
                                 {"divide factor", "not positive"});
  }
  LossOf(tower, InputOf(0)).backward();
  ExpectGradients(tower, 1, {0});
}

TEST(SetUnshardInBackward, LeavesOutAGather) {
  RunRanks(2, [] {
    InitRank();
    torch::manual_seed(11);
    TinyModel reference;
    torch::manual_seed(11);
    TinyModel model;
    FSDPModule tokens = fully_shard(model->tokens);
    tokens.set_unshard_in_backward(false);
    fully_shard(model);
    CountingBackend& counts =
        Count(tokens.state()->group()->config().shard_group);
    const torch::Tensor batch = TinyBatch(0);
    torch::Tensor loss = TinyLoss(model, batch);
    EXPECT_EQ(counts.ToString(), "all_gather 2");
    loss.backward();
    EXPECT_EQ(counts.ToString(), "all_gather 2, reduce_scatter 2");
    TinyLoss(reference, batch).backward();
    EXPECT_TRUE(
        torch::allclose(parameters(*model->tokens)[0].grad()->full_tensor(),
                        reference->tokens->weight.grad(), 1e-4, 1e-6));
  });
}

TEST(PostOptimEvent, IsTheRootsAndConsumedOnce) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    const auto event = std::make_shared<c10::Event>(c10::kCPU);
    ExpectError<c10::Error>([&] { s.layers[1].set_post_optim_event(event); },
                            {"is for the root, not for '1'"});
    EXPECT_EQ(event.use_count(), 1);
    s.root.set_post_optim_event(event);
    EXPECT_EQ(event.use_count(), 2);
    s.Forward();
    EXPECT_EQ(event.use_count(), 1);
    s.Backward();
    ExpectGradients(s.tower, 0.5, {0, 1});
  });
}

TEST(Handles, NamesRootsAndOrder) {
  if (!is_initialized()) init_process_group();
  torch::manual_seed(11);
  TinyModel model;
  fully_shard(model->blocks[2]);
  const FSDPModule attention =
      fully_shard(model->blocks[0]->as<Block>()->attention);
  EXPECT_TRUE(attention.is_root());
  EXPECT_EQ(attention.name(), "");
  const FSDPModule block = fully_shard(model->blocks[0]);
  EXPECT_EQ(attention.name(), "attention");
  const FSDPModule root = fully_shard(model);
  Log names;
  int num_roots = 0;
  for (const FSDPModule& module : fsdp_modules(*model)) {
    names.push_back(module.name());
    num_roots += module.is_root() ? 1 : 0;
  }
  EXPECT_THAT(names,
              ElementsAre("", "blocks.0", "blocks.0.attention", "blocks.2"));
  EXPECT_EQ(num_roots, 1);
  EXPECT_TRUE(root.is_root());
  EXPECT_EQ(fsdp_modules(*model->blocks[0]),
            (std::vector<FSDPModule>{block, attention}));
  const auto registered = model->named_parameters();
  const auto named = fsdp::named_parameters(*model);
  ASSERT_EQ(named.size(), registered.size());
  for (size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(named[i].first, registered[i].key());
    EXPECT_TRUE(named[i].second.to_local().is_same(registered[i].value()));
  }
}

TEST(Handles, OfModulesAndTensorsThatAreNotSharded) {
  if (!is_initialized()) init_process_group();
  const Tower tower = MakeTower();
  EXPECT_FALSE(find_fsdp_module(*tower).has_value());
  ExpectError<c10::ValueError>([&] { get_fsdp_module(*tower); },
                               {"fully_shard was not applied", "Tower"});
  EXPECT_THAT(fsdp_modules(*tower), IsEmpty());
  EXPECT_THAT(parameters(*tower), IsEmpty());
  EXPECT_FALSE(dtensor_of(tower->stem->weight).has_value());
  EXPECT_FALSE(dtensor_of(torch::Tensor()).has_value());
  fully_shard(tower->stem);
  // The member and the registry's entry are one parameter.
  const torch::Tensor shard = ParametersOf(*tower->stem)["weight"];
  EXPECT_FALSE(shard.is_same(tower->stem->weight));
  EXPECT_TRUE(dtensor_of(shard)->to_local().is_same(shard));
  EXPECT_TRUE(dtensor_of(tower->stem->weight)->to_local().is_same(shard));
  EXPECT_FALSE(dtensor_of(shard.detach()).has_value());
  EXPECT_FALSE(dtensor_of(tower->top->weight).has_value());
  EXPECT_EQ(fsdp_modules(*tower).size(), 1U);
  EXPECT_EQ(parameters(*tower).size(), 2U);
}

TEST(Shards, AreTheStateBeforeAndAfterForward) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower({.reshard_after_forward = false});
    const auto before = s.tower->named_parameters();
    std::vector<torch::Tensor> values;
    for (const auto& item : before) {
      values.push_back(item.value().detach().clone());
    }
    const void* memory = before[0].value().data_ptr();
    s.Forward();
    EXPECT_TRUE(s.layers[0].is_unsharded());
    const auto after = s.tower->named_parameters();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(after[i].key(), before[i].key());
      EXPECT_TRUE(after[i].value().is_same(before[i].value()));
      EXPECT_TRUE(after[i].value().equal(values[i])) << before[i].key();
    }
    EXPECT_EQ(after[0].value().data_ptr(), memory);
    // Loading writes into the shards; reshard drops the gathered parameters.
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : after) item.value().fill_(0.25);
    }
    for (FSDPModule& module : fsdp_modules(*s.tower)) module.reshard();
    Tower want = MakeTower();
    {
      const torch::NoGradGuard no_grad;
      for (auto& p : want->parameters()) p.fill_(0.25);
    }
    EXPECT_TRUE(torch::allclose(s.tower->forward(InputOf(0)),
                                want->forward(InputOf(0))));
  });
}

TEST(Shards, MayBeOfAnotherDtype) {
  RunRanks(2, [] {
    InitRank();
    Sharded s = ShardTower();
    s.Forward();
    s.Backward();
    ClearGradients(*s.tower);
    s.tower->to(torch::kDouble);
    Tower want = MakeTower();
    want->to(torch::kDouble);
    const torch::Tensor x = InputOf(0).to(torch::kDouble);
    const torch::Tensor out = s.tower->forward(x);
    EXPECT_EQ(out.scalar_type(), torch::kDouble);
    EXPECT_TRUE(torch::allclose(out, want->forward(x)));
    out.sum().backward();
    const DTensor weight = parameters(*s.tower)[0];
    EXPECT_EQ(weight.scalar_type(), torch::kDouble);
    EXPECT_EQ(weight.grad()->scalar_type(), torch::kDouble);
    // A gather in flight does not keep the old values.
    UnshardHandle handle = s.layers[0].unshard();
    s.layers[0].reshard();
    s.tower->to(torch::kFloat);
    EXPECT_EQ(s.tower->forward(InputOf(0)).scalar_type(), torch::kFloat);
  });
}

TEST(Prefetch, OfListedModulesIsThatOfTheirGroup) {
  RunRanks(2, [] {
    InitRank();
    Log log;
    Tower tower = MakeTower(4);
    std::vector<ModulePtr> middle{tower->layers[1].ptr(),
                                  tower->layers[2].ptr()};
    fully_shard(tower->layers[0]);
    const FSDPModule pair = fully_shard(middle);
    fully_shard(tower->layers[3]);
    const FSDPModule root = fully_shard(tower);
    EXPECT_EQ(pair.name(), "1, 2");
    Sharded s{tower, root, {}, nullptr, {}};
    LogCollectives(s, &log);
    s.Forward();
    EXPECT_EQ(log, Log({"gather root", "gather 0", "forward 0", "gather 1, 2",
                        "forward 1", "forward 2", "gather 3", "forward 3"}));
    log.clear();
    s.Backward();
    EXPECT_EQ(log, Log({"gather 3", "backward 3", "gather 1, 2", "reduce 3",
                        "backward 2", "gather 0", "backward 1", "reduce 1, 2",
                        "backward 0", "reduce 0", "reduce root"}));
  });
}

TEST(ShareCommContext, TakesTheFirstRoots) {
  RunRanks(2, [] {
    InitRank();
    Sharded a = ShardTower();
    Sharded b = ShardTower();
    ExpectError<c10::ValueError>(
        [&] {
          share_comm_ctx({a.root, b.layers[1]});
        },
        {"roots", "'1'"});
    share_comm_ctx({});
    share_comm_ctx({a.root, b.root});
    reset_step_report(*a.tower);
    a.Forward();
    b.Forward();
    // One report for both.
    EXPECT_EQ(step_report(*a.tower).num_all_gathers, 8);
    EXPECT_EQ(step_report(*b.tower).num_all_gathers, 8);
    b.Backward();
    a.Backward();
    ExpectGradients(a.tower, 0.5, {0, 1});
    ExpectGradients(b.tower, 0.5, {0, 1});
    // A pipeline: the backward of one inside that of the other.
    ClearGradients(*a.tower);
    ClearGradients(*b.tower);
    const torch::Tensor x = InputOf(get_rank());
    const torch::Tensor loss = LossOf(b.tower, a.tower->forward(x));
    loss.backward();
    Tower c = MakeTower();
    Tower d = MakeTower();
    for (const int64_t rank : {0, 1}) {
      LossOf(d, c->forward(InputOf(rank))).backward();
    }
    for (size_t i = 0; i < c->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters(*a.tower)[i].grad()->full_tensor(),
                                  c->parameters()[i].grad() / 2, 1e-4, 1e-6));
      EXPECT_TRUE(torch::allclose(parameters(*b.tower)[i].grad()->full_tensor(),
                                  d->parameters()[i].grad() / 2, 1e-4, 1e-6));
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
