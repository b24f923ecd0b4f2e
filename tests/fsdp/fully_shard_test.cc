// The modules that fully_shard accepts, those that it refuses and how, and the
// parameters that a call takes. Cases of one rank run in this process.

#include "fsdp/fully_shard.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/fsdp/tiny_model.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ModulePtr = std::shared_ptr<torch::nn::Module>;

// A job that consists of only this process; it lasts as long as the binary.
void OneRank() {
  if (!is_initialized()) init_process_group();
}

DeviceMesh MeshOf(const std::vector<int64_t>& shape,
                  const std::vector<std::string>& names = {}) {
  return init_device_mesh("cpu", shape, names);
}

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t dim = 4) {
    first = register_module("first", torch::nn::Linear(dim, 2 * dim));
    second = register_module("second", torch::nn::Linear(2 * dim, dim));
    shift = register_buffer("shift", torch::full({dim}, 0.5));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second(torch::relu(first(x))) + shift;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(Mlp);

struct TowerImpl : torch::nn::Module {
  explicit TowerImpl(int64_t num_layers) {
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.push_back(
          register_module(std::string(1, static_cast<char>('a' + i)), Mlp(4)));
    }
    scale = register_parameter("scale", torch::ones({4}));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (Mlp& layer : layers) x = layer(x);
    return x * scale;
  }
  std::vector<Mlp> layers;
  torch::Tensor scale;
};
TORCH_MODULE(Tower);

// One more parameter, of any kind, next to a module that works.
struct OddImpl : torch::nn::Module {
  explicit OddImpl(const torch::Tensor& tensor) {
    inner = register_module("inner", Mlp(4));
    odd = register_parameter("odd", tensor, tensor.is_floating_point());
  }
  torch::Tensor forward(const torch::Tensor& x) { return inner(x); }
  Mlp inner{nullptr};
  torch::Tensor odd;
};
TORCH_MODULE(Odd);

std::vector<std::string> OwnParameters(const FSDPModule& module) {
  std::vector<std::string> names;
  if (module.state()->group() == nullptr) return names;
  for (const auto& param : module.state()->group()->params()) {
    names.push_back(param->name());
  }
  return names;
}

std::vector<std::string> NamesOf(const std::vector<FSDPModule>& modules) {
  std::vector<std::string> names;
  for (const FSDPModule& module : modules) names.push_back(module.name());
  return names;
}

// `refused` must fail as described and change nothing; then `accepted` must
// work, and the module must compute the same as before.
template <typename Error, typename Holder>
void ExpectRefused(Holder& module, const FullyShardOptions& refused,
                   const std::vector<std::string>& says,
                   const FullyShardOptions& accepted = {}) {
  const torch::Tensor x = torch::linspace(-1, 1, 8).view({2, 4});
  const torch::Tensor before = module->forward(x);
  const ModuleSnapshot snapshot(*module);
  for (int i = 0; i < 2; ++i) {
    ExpectError<Error>([&] { fully_shard(module, refused); }, says);
  }
  snapshot.ExpectSame(*module);
  EXPECT_FALSE(find_fsdp_module(*module).has_value());
  EXPECT_THAT(fsdp_modules(*module), IsEmpty());
  fully_shard(module, accepted);
  EXPECT_TRUE(find_fsdp_module(*module).has_value());
  EXPECT_TRUE(torch::equal(module->forward(x), before));
}

template <typename Error>
void ExpectOddRefused(const torch::Tensor& odd,
                      const std::vector<std::string>& says) {
  Odd module(odd);
  ExpectRefused<Error>(module, {}, says, {.ignored_params = {module->odd}});
  EXPECT_TRUE(module->odd.is_same(module->named_parameters()["odd"]));
}

TEST(FullyShardModules, ContainersWithoutForwardAreRefused) {
  OneRank();
  const torch::nn::ModuleList list(Mlp(4));
  const torch::nn::ParameterList parameters(torch::ones({4}));
  const Mlp fine(4);
  const ModuleSnapshot before(*fine);
  ExpectError<c10::ValueError>([&] { fully_shard(list); },
                               {"ModuleList", "has no forward"});
  ExpectError<c10::ValueError>([&] { fully_shard(torch::nn::ModuleDict()); },
                               {"ModuleDict", "has no forward"});
  ExpectError<c10::ValueError>([&] { fully_shard(parameters); },
                               {"ParameterList", "has no forward"});
  ExpectError<c10::ValueError>([&] { fully_shard(torch::nn::ParameterDict()); },
                               {"ParameterDict", "has no forward"});
  ExpectError<c10::ValueError>(
      [&] {
        fully_shard(std::vector<ModulePtr>{fine.ptr(), list.ptr()});
      },
      {"ModuleList", "has no forward"});
  before.ExpectSame(*fine);
  EXPECT_FALSE(find_fsdp_module(*fine).has_value());
  // A Sequential has one.
  fully_shard(torch::nn::Sequential(torch::nn::Linear(2, 2)));
}

TEST(FullyShardModules, NoneNullAndTwiceAreRefused) {
  OneRank();
  ExpectError<c10::IndexError>([] { fully_shard(std::vector<ModulePtr>()); },
                               {"list of modules is empty"});
  ExpectError<c10::ValueError>([] { fully_shard(ModulePtr()); },
                               {"module is null"});
  const Mlp module(4);
  const ModuleSnapshot before(*module);
  ExpectError<c10::Error>(
      [&] {
        fully_shard(std::vector<ModulePtr>{module.ptr(), module.ptr()});
      },
      {"only once", "Mlp"});
  before.ExpectSame(*module);
  const FSDPModule handle = fully_shard(module);
  ExpectError<c10::Error>([&] { fully_shard(module); }, {"only once", "Mlp"});
  ExpectError<c10::Error>(
      [&] {
        fully_shard(std::vector<ModulePtr>{Mlp(4).ptr(), module.ptr()});
      },
      {"only once", "Mlp"});
  EXPECT_EQ(get_fsdp_module(*module), handle);
}

TEST(FullyShardModules, EachCallHasAStateOfItsOwn) {
  OneRank();
  Tower tower(2);
  const FSDPModule a = fully_shard(tower->layers[0]);
  const FSDPModule b = fully_shard(tower->layers[1]);
  const FSDPModule root = fully_shard(tower);
  EXPECT_EQ(get_fsdp_module(*tower->layers[0]), a);
  EXPECT_EQ(get_fsdp_module(*tower->layers[1]), b);
  EXPECT_EQ(get_fsdp_module(*tower), root);
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(a == root);
  EXPECT_FALSE(find_fsdp_module(*tower->layers[0]->first).has_value());
}

TEST(FullyShardMesh, AxesAndNames) {
  OneRank();
  Mlp module(4);
  ExpectRefused<c10::ValueError>(module, {.mesh = MeshOf({1, 1, 1})},
                                 {"must have 1 or 2 axes, not 3"});
  Mlp other(4);
  ExpectRefused<c10::Error>(other, {.mesh = MeshOf({1, 1})},
                            {"2 axes needs names"},
                            {.mesh = MeshOf({1, 1}, {"replicate", "shard"})});
  EXPECT_THAT(parameters(*other)[0].placements(),
              ElementsAre(Replicate(), Shard(0)));
}

TEST(FullyShardMesh, DefaultIsTheWorldAndMakesItsGroup) {
  destroy_process_group();
  const Mlp module(4);
  fully_shard(module);
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(parameters(*module)[0].device_mesh(), MeshOf({1}));
}

TEST(FullyShardMesh, MayBeMadeOfGroups) {
  RunRanks(4, [] {
    init_process_group();
    const std::vector<std::string> names = {"replicate", "shard"};
    const DeviceMesh made = MeshOf({2, 2}, names);
    const ProcessGroup replicate =
        new_subgroups({{0, 2}, {1, 3}}, "own_replicate");
    const ProcessGroup shard = new_subgroups({{0, 1}, {2, 3}}, "own_shard");
    const DeviceMesh wrapped = DeviceMesh::from_group(
        {replicate, shard}, c10::kCPU, {2, 2}, {0, 1, 2, 3}, names);
    const DeviceMesh pair = DeviceMesh::from_group(shard, c10::kCPU);
    std::vector<Mlp> models;
    for (const DeviceMesh& mesh : {made, wrapped, pair, made["shard"]}) {
      torch::manual_seed(3);
      models.emplace_back(4);
      fully_shard(models.back(), {.mesh = mesh});
      const torch::Tensor x = torch::full({1, 4}, 1.0 + get_rank());
      models.back()->forward(x).pow(2).sum().backward();
    }
    // Two axes average over four ranks, one over two.
    for (size_t i = 0; i < 4; ++i) {
      const auto gradient = [&](size_t model) {
        return parameters(*models[model])[i].grad()->to_local();
      };
      EXPECT_TRUE(gradient(0).equal(gradient(1))) << i;
      EXPECT_TRUE(gradient(2).equal(gradient(3))) << i;
      EXPECT_FALSE(gradient(0).equal(gradient(2))) << i;
    }
  });
}

TEST(FullyShardParameters, ScalarIsRefused) {
  OneRank();
  ExpectOddRefused<c10::ValueError>(
      torch::tensor(2.0),
      {"'odd'", "change it to a 1-D tensor with numel equal to 1"});
  fully_shard(Odd(torch::ones({1})));
}

TEST(FullyShardParameters, NonContiguousIsRefused) {
  OneRank();
  ExpectOddRefused<c10::NotImplementedError>(
      torch::zeros({2, 3, 4, 4}).to(torch::MemoryFormat::ChannelsLast),
      {"'odd'", "not contiguous", "[2, 3, 4, 4]", "[48, 1, 12, 3]"});
}

TEST(FullyShardParameters, NonFloatingIsRefused) {
  OneRank();
  ExpectOddRefused<c10::ValueError>(
      torch::ones({4}, torch::kLong),
      {"'odd'", "Long", "only floating", "ignored_params"});
}

TEST(FullyShardParameters, MetaBesideRealIsRefused) {
  OneRank();
  ExpectOddRefused<c10::NotImplementedError>(
      torch::ones({4}, torch::kMeta),
      {"'odd'", "'inner.first.weight'", "meta"});
}

TEST(FullyShardParameters, OldGradientsAreDropped) {
  OneRank();
  Mlp module(4);
  const torch::Tensor x = torch::ones({2, 4});
  module->forward(x).sum().backward();
  const torch::Tensor want = module->first->weight.grad().clone();
  fully_shard(module);
  EXPECT_FALSE(parameters(*module)[0].grad().has_value());
  module->forward(x).sum().backward();
  EXPECT_TRUE(parameters(*module)[0].grad()->to_local().equal(want));
}

TEST(FullyShardPlacement, ChoosesTheDimension) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    Mlp module(4);
    std::vector<torch::Tensor> whole;
    for (const auto& p : module->parameters()) {
      whole.push_back(p.detach().clone());
    }
    // first.weight, first.bias, second.weight, second.bias
    fully_shard(module, {.shard_placement_fn =
                             [&](const at::Tensor& t) -> std::optional<Shard> {
                  if (t.dim() == 1) return std::nullopt;
                  return t.size(0) == 8 ? Shard(-1) : Shard(1);
                }});
    const std::vector<DTensor> got = parameters(*module);
    const int64_t dims[] = {1, 0, 1, 0};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_THAT(got[i].placements(), ElementsAre(Shard(dims[i]))) << i;
      EXPECT_TRUE(got[i].to_local().equal(
          whole[i].chunk(2, dims[i])[static_cast<size_t>(get_rank())]));
      EXPECT_TRUE(got[i].full_tensor().equal(whole[i])) << i;
    }
  });
}

TEST(FullyShardPlacement, BadDimensionsAreRefused) {
  OneRank();
  const auto shard = [](int64_t dim) {
    return FullyShardOptions{
        .shard_placement_fn =
            [dim](const at::Tensor& t) -> std::optional<Shard> {
          return t.dim() == 1 ? Shard(dim) : Shard(0);
        }};
  };
  Mlp module(4);
  ExpectRefused<c10::Error>(module, shard(1),
                            {"invalid", "'first.bias'", "of 1 dim"}, shard(-1));
  Mlp other(4);
  ExpectRefused<c10::Error>(other, shard(-2),
                            {"invalid", "'first.bias'", "of 1 dim"}, shard(0));
}

TEST(FullyShardPlacement, UnevenBeyondDimensionZeroIsRefused) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    Odd module(torch::ones({4, 17}));
    const auto fn = [](const at::Tensor& t) -> std::optional<Shard> {
      return Shard(t.dim() - 1);
    };
    ExpectRefused<c10::NotImplementedError>(
        module, {.shard_placement_fn = fn},
        {"uneven sharding on dimension 1", "'odd'", "17", "divisible by 2"});
  });
}

TEST(FullyShardPolicy, LowPrecisionMustBeFloating) {
  OneRank();
  Mlp a(4), b(4), c(4);
  ExpectRefused<c10::ValueError>(a, {.mp_policy = {.param_dtype = at::kInt}},
                                 {"param_dtype", "Int", "floating"});
  ExpectRefused<c10::ValueError>(b, {.mp_policy = {.reduce_dtype = at::kLong}},
                                 {"reduce_dtype", "Long", "floating"});
  ExpectRefused<c10::ValueError>(c, {.mp_policy = {.output_dtype = at::kBool}},
                                 {"output_dtype", "Bool", "floating"});
}

TEST(FullyShardPolicy, PinnedMemoryNeedsAnAccelerator) {
  OneRank();
  Mlp module(4);
  ExpectRefused<c10::Error>(
      module, {.offload_policy = CPUOffloadPolicy{}},
      {"pinned memory", "CPUOffloadPolicy{.pin_memory = false}"},
      {.offload_policy = CPUOffloadPolicy{.pin_memory = false}});
}

TEST(FullyShardPolicy, ExtensionNeedsBothFunctions) {
  OneRank();
  const auto with = [](AllGatherExtension extension) {
    return FullyShardOptions{
        .all_gather_extension_fn = [extension](const std::string& name,
                                               const at::Tensor&)
            -> std::optional<AllGatherExtension> {
          if (name != "second.weight") return std::nullopt;
          return extension;
        }};
  };
  const auto pre = [](const at::Tensor& shard,
                      const AllGatherExtension::Context&) {
    return AllGatherExtension::Inputs{.tensors = {shard}, .metadata = {}};
  };
  Mlp a(4), b(4);
  ExpectRefused<c10::Error>(
      a, with({.pre_all_gather = pre, .post_all_gather = {}}),
      {"'second.weight'", "both of its functions"});
  ExpectRefused<c10::Error>(
      b,
      with({.pre_all_gather = {},
            .post_all_gather = [](const std::vector<at::Tensor>&,
                                  const std::vector<at::Tensor>&,
                                  at::Tensor) {}}),
      {"'second.weight'", "both of its functions"});
}

TEST(FullyShardPolicy, FunctionsOfTheUserMayFail) {
  OneRank();
  Mlp a(4), b(4);
  ExpectRefused<c10::IndexError>(
      a,
      {.shard_placement_fn = [](const at::Tensor& t) -> std::optional<Shard> {
        TORCH_CHECK_INDEX(t.size(0) != 4, "no place for this");
        return std::nullopt;
      }},
      {"no place for this"});
  ExpectRefused<c10::IndexError>(
      b,
      {.all_gather_extension_fn = [](const std::string& name, const at::Tensor&)
           -> std::optional<AllGatherExtension> {
        TORCH_CHECK_INDEX(name != "second.bias", "no extension for this");
        return std::nullopt;
      }},
      {"no extension for this"});
}

TEST(FullyShardReshard, OneRankTakesOnlyOne) {
  OneRank();
  for (const int64_t num_ranks : {0, -1, 2}) {
    Mlp module(4);
    ExpectRefused<c10::ValueError>(
        module, {.reshard_after_forward = num_ranks},
        {"reshard_after_forward is " + std::to_string(num_ranks),
         "number of shards, 1"},
        {.reshard_after_forward = 1});
  }
}

TEST(FullyShardReshard, IntsAreDivisorsOfTheShards) {
  RunRanks(4, [] {
    init_process_group();
    torch::manual_seed(3);
    const DeviceMesh one = MeshOf({4});
    const DeviceMesh two = MeshOf({2, 2}, {"replicate", "shard"});
    for (const int64_t num_ranks : {-2, 0, 3, 8}) {
      Mlp module(4);
      ExpectRefused<c10::ValueError>(
          module, {.mesh = one, .reshard_after_forward = num_ranks},
          {"is " + std::to_string(num_ranks), "number of shards, 4"});
    }
    Mlp hybrid(4);
    ExpectRefused<c10::ValueError>(hybrid,
                                   {.mesh = two, .reshard_after_forward = 4},
                                   {"is 4", "number of shards, 2"});
    const auto printed = [](const DeviceMesh& mesh, int num_ranks) {
      const Mlp module(4);
      fully_shard(module, {.mesh = mesh, .reshard_after_forward = num_ranks});
      return to_string(*module);
    };
    EXPECT_THAT(printed(one, 1), HasSubstr(", keeps after forward"));
    EXPECT_THAT(printed(one, 2), HasSubstr(", reshards to 2 after forward"));
    EXPECT_THAT(printed(one, 4), HasSubstr(", reshards after forward"));
    EXPECT_THAT(printed(two, 1), HasSubstr(", keeps after forward"));
    EXPECT_THAT(printed(two, 2), HasSubstr(", reshards after forward"));
  });
}

TEST(FullyShardManages, ChunksOnTheGlobalMesh) {
  RunRanks(3, [] {
    init_process_group();
    torch::manual_seed(3);
    Mlp module(1);
    Tower tower(1);
    for (const ModulePtr& root :
         std::vector<ModulePtr>{module.ptr(), tower.ptr()}) {
      std::vector<torch::Tensor> whole;
      for (const auto& p : root->parameters()) {
        whole.push_back(p.detach().clone());
      }
      fully_shard(root);
      const auto named = fsdp::named_parameters(*root);
      const auto registered = root->named_parameters();
      ASSERT_EQ(named.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        const DTensor& tensor = named[i].second;
        EXPECT_EQ(named[i].first, registered[i].key());
        EXPECT_EQ(tensor.device_mesh(), MeshOf({3}));
        EXPECT_THAT(tensor.placements(), ElementsAre(Shard(0)));
        EXPECT_EQ(tensor.shape(), whole[i].sizes().vec());
        EXPECT_EQ(tensor.spec().stride, whole[i].strides().vec());
        const auto chunks = whole[i].chunk(3);
        const auto rank = static_cast<size_t>(get_rank());
        const torch::Tensor mine =
            rank < chunks.size() ? chunks[rank] : whole[i].narrow(0, 0, 0);
        EXPECT_TRUE(tensor.to_local().equal(mine)) << named[i].first;
        EXPECT_TRUE(tensor.to_local().is_same(registered[i].value()));
        EXPECT_TRUE(tensor.to_local().is_leaf());
        EXPECT_TRUE(tensor.to_local().requires_grad());
      }
    }
  });
}

TEST(FullyShardManages, WhatInnerCallsLeft) {
  OneRank();
  Tower tower(3);
  const FSDPModule inner = fully_shard(tower->layers[1]);
  const FSDPModule root = fully_shard(tower);
  EXPECT_THAT(OwnParameters(inner),
              ElementsAre("b.first.weight", "b.first.bias", "b.second.weight",
                          "b.second.bias"));
  EXPECT_THAT(OwnParameters(root),
              ElementsAre("a.first.weight", "a.first.bias", "a.second.weight",
                          "a.second.bias", "c.first.weight", "c.first.bias",
                          "c.second.weight", "c.second.bias", "scale"));
  EXPECT_THAT(NamesOf(fsdp_modules(*tower)), ElementsAre("", "b"));
  EXPECT_TRUE(root.is_root());
  EXPECT_FALSE(inner.is_root());
}

TEST(FullyShardManages, NothingIsLeftForTheRoot) {
  OneRank();
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  for (const auto& child : model->children()) fully_shard(child);
  const FSDPModule root = fully_shard(model);
  EXPECT_THAT(OwnParameters(root), IsEmpty());
  EXPECT_TRUE(root.is_root());
  EXPECT_THAT(NamesOf(fsdp_modules(*model)), ElementsAre("", "0", "1"));
  EXPECT_EQ(get_fsdp_module(*model), root);
  torch::Tensor x = torch::ones({1, 4});
  model->forward(x).sum().backward();
  EXPECT_EQ(parameters(*model).size(), 4U);
}

TEST(FullyShardManages, OneModuleInTwoPlacesOnce) {
  OneRank();
  auto model = std::make_shared<torch::nn::Module>();
  const Mlp mlp(4);
  model->register_module("x", mlp);
  model->register_module("y", mlp);
  const FSDPModule root = fully_shard(ModulePtr(model));
  EXPECT_EQ(OwnParameters(root).size(), 4U);
  const torch::Tensor x = model->named_parameters()["x.first.weight"];
  EXPECT_TRUE(x.is_same(ParametersOf(*mlp->first)["weight"]));
  EXPECT_TRUE(dtensor_of(x).has_value());
}

TEST(FullyShardManages, AListIsOneGroup) {
  OneRank();
  Tower tower(4);
  const FSDPModule pair = fully_shard(
      std::vector<ModulePtr>{tower->layers[0].ptr(), tower->layers[2].ptr()});
  EXPECT_EQ(get_fsdp_module(*tower->layers[0]), pair);
  EXPECT_EQ(get_fsdp_module(*tower->layers[2]), pair);
  EXPECT_FALSE(find_fsdp_module(*tower->layers[1]).has_value());
  EXPECT_FALSE(find_fsdp_module(*tower).has_value());
  EXPECT_EQ(OwnParameters(pair).size(), 8U);
  EXPECT_FALSE(HasLazyKey(tower->layers[1]->first->weight));
  EXPECT_FALSE(HasLazyKey(tower->scale));
  const FSDPModule root = fully_shard(tower);
  EXPECT_EQ(OwnParameters(root).size(), 9U);
  EXPECT_EQ(pair.name(), "a, c");
  EXPECT_THAT(NamesOf(fsdp_modules(*tower)), ElementsAre("", "a, c"));
}

TEST(FullyShardManages, OfAListTheOuterModulesCount) {
  OneRank();
  Tower tower(2);
  const FSDPModule handle = fully_shard(std::vector<ModulePtr>{
      tower->layers[0]->first.ptr(), tower->layers[0].ptr(),
      tower->layers[1]->second.ptr()});
  EXPECT_EQ(handle.state()->modules().size(), 2U);
  EXPECT_EQ(OwnParameters(handle).size(), 6U);
  EXPECT_EQ(get_fsdp_module(*tower->layers[0]), handle);
  EXPECT_EQ(get_fsdp_module(*tower->layers[1]->second), handle);
  EXPECT_FALSE(find_fsdp_module(*tower->layers[0]->first).has_value());
}

TEST(FullyShardManages, BuffersStayWhole) {
  RunRanks(2, [] {
    init_process_group();
    struct Net : torch::nn::Module {
      Net() { norm = register_module("norm", torch::nn::BatchNorm1d(6)); }
      torch::nn::BatchNorm1d norm{nullptr};
    };
    const auto net = std::make_shared<Net>();
    const torch::Tensor mean = net->norm->running_mean;
    fully_shard(ModulePtr(net));
    for (const auto& item : net->named_buffers()) {
      EXPECT_FALSE(HasLazyKey(item.value())) << item.key();
      EXPECT_FALSE(dtensor_of(item.value()).has_value()) << item.key();
    }
    EXPECT_TRUE(mean.is_same(net->named_buffers()["norm.running_mean"]));
    net->norm(torch::arange(12).view({2, 6}).to(torch::kFloat));
    // 0.1 of the mean of x and x + 6.
    EXPECT_TRUE(torch::allclose(mean, 0.1 * (torch::arange(6) + 3)));
  });
}

TEST(FullyShardManages, IgnoredParametersStayAsTheyAre) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    Mlp model(4);
    const torch::Tensor weight = model->first->weight;
    const torch::Tensor bias = model->first->bias;
    const FSDPModule root =
        fully_shard(model, {.ignored_params = {weight, bias}});
    EXPECT_THAT(OwnParameters(root),
                ElementsAre("second.weight", "second.bias"));
    EXPECT_TRUE(weight.is_same(model->named_parameters()["first.weight"]));
    EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{8, 4}));
    EXPECT_FALSE(dtensor_of(weight).has_value());
    EXPECT_EQ(fsdp::named_parameters(*model).size(), 2U);
    const auto rank = static_cast<double>(get_rank());
    model->forward(torch::full({1, 4}, 1 + rank)).sum().backward();
    // Not reduced: the gradient is that of this rank's input alone, which is
    // constant over a row.
    const torch::Tensor want = bias.grad().unsqueeze(1).expand({8, 4});
    EXPECT_TRUE(torch::allclose(weight.grad(), want * (1 + rank)));
    EXPECT_GT(bias.grad().abs().sum().item<double>(), 0);
    EXPECT_EQ(parameters(*model)[0].grad()->shape(),
              (std::vector<int64_t>{4, 8}));
  });
}

TEST(FullyShardTies, InsideOneCallStayTied) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  fully_shard(model->blocks[0]);
  const FSDPModule root = fully_shard(model);
  const torch::Tensor shard = ParametersOf(*model->tokens)["weight"];
  EXPECT_TRUE(shard.is_same(ParametersOf(*model->head)["weight"]));
  EXPECT_TRUE(model->tokens->weight.is_same(model->head->weight));
  EXPECT_FALSE(shard.is_same(model->head->weight));
  int64_t count = 0;
  for (const std::string& name : OwnParameters(root)) {
    count += name == "tokens.weight" || name == "head.weight" ? 1 : 0;
  }
  EXPECT_EQ(count, 1);
}

TEST(FullyShardTies, AcrossCallsAreRefusedByName) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  fully_shard(model->tokens);
  fully_shard(model->blocks[0]);
  const torch::Tensor before = ParametersOf(*model->norm)["weight"];
  const std::vector<std::string> says = {"'head.weight' is tied to",
                                         "in one call"};
  ExpectError<c10::ValueError>([&] { fully_shard(model); }, says);
  ExpectError<c10::ValueError>([&] { fully_shard(model->head); },
                               {"'weight' is tied to 'weight'"});
  EXPECT_TRUE(before.is_same(ParametersOf(*model->norm)["weight"]));
  EXPECT_FALSE(HasLazyKey(before));
  EXPECT_FALSE(find_fsdp_module(*model).has_value());
  EXPECT_TRUE(get_fsdp_module(*model->blocks[0]).is_root());
  // Modules that are not tied can still be sharded.
  fully_shard(model->norm);
}

TEST(FullyShardTies, AcrossListedModulesAreOneCall) {
  OneRank();
  TinyModel model(TinyModelOptions{.tied = true});
  const FSDPModule ends = fully_shard(
      std::vector<ModulePtr>{model->tokens.ptr(), model->head.ptr()});
  EXPECT_EQ(OwnParameters(ends).size(), 1U);
  fully_shard(model);
  EXPECT_TRUE(ParametersOf(*model->tokens)["weight"].is_same(
      ParametersOf(*model->head)["weight"]));
  TinyLoss(model, TinyBatch(0)).backward();
  EXPECT_TRUE(ParametersOf(*model->head)["weight"].grad().defined());
}

TEST(FullyShardUse, MetaParametersMustBeMaterialised) {
  OneRank();
  Mlp module{nullptr};
  {
    const MetaDeviceGuard guard;
    module = Mlp(4);
  }
  fully_shard(module);
  EXPECT_TRUE(parameters(*module)[0].to_local().is_meta());
  ExpectError<c10::Error>(
      [&] {
        module->forward(torch::ones({1, 4}));
      },
      {"meta device", "first.weight", "second.bias",
       "fsdp::to_empty(module, device)"});
}

TEST(FullyShardUse, TrainableParametersOfOneGroupHaveOneDtype) {
  OneRank();
  Mlp mixed(4);
  mixed->second->to(torch::kDouble);
  fully_shard(mixed);
  ExpectError<c10::Error>(
      [&] {
        mixed->forward(torch::ones({1, 4}));
      },
      {"'first.weight' is Float",
       "'second.weight' is "
       "Double"});
  Mlp frozen(4);
  frozen->second->to(torch::kDouble);
  for (auto& p : frozen->second->parameters()) p.set_requires_grad(false);
  fully_shard(frozen);
  const torch::Tensor h = frozen->first(torch::ones({1, 4}));
  EXPECT_EQ(frozen->second(h.to(torch::kDouble)).scalar_type(), torch::kDouble);
}

TEST(FullyShardUse, AChildMayRunBeforeItsRootIsSharded) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    Tower reference(2);
    torch::manual_seed(3);
    Tower tower(2);
    const torch::Tensor x = torch::linspace(-1, 1, 8).view({2, 4});
    const FSDPModule child = fully_shard(tower->layers[0]);
    EXPECT_TRUE(child.is_root());
    EXPECT_EQ(child.name(), "");
    EXPECT_TRUE(torch::allclose(tower->layers[0](x), reference->layers[0](x)));
    const FSDPModule root = fully_shard(tower);
    EXPECT_FALSE(child.is_root());
    EXPECT_EQ(child.name(), "a");
    EXPECT_FALSE(child.is_unsharded());
    tower->forward(x).sum().backward();
    reference->forward(x).sum().backward();
    const auto want = reference->named_parameters();
    for (const auto& [name, parameter] : fsdp::named_parameters(*tower)) {
      EXPECT_TRUE(
          torch::allclose(parameter.grad()->full_tensor(), want[name].grad()))
          << name;
    }
  });
}

TEST(FullyShardUse, AListMayBeTheRoot) {
  RunRanks(2, [] {
    init_process_group();
    torch::manual_seed(3);
    const Mlp a(4), b(4);
    const torch::Tensor x = torch::linspace(-1, 1, 8).view({2, 4});
    Mlp first = a, second = b;
    const torch::Tensor want = second(first(x)).detach();
    const FSDPModule root =
        fully_shard(std::vector<ModulePtr>{a.ptr(), b.ptr()});
    EXPECT_TRUE(root.is_root());
    const torch::Tensor got = second(first(x));
    EXPECT_TRUE(torch::allclose(got, want));
    got.sum().backward();
    EXPECT_TRUE(parameters(*a)[0].grad().has_value());
    EXPECT_TRUE(parameters(*b)[3].grad().has_value());
  });
}

}  // namespace
}  // namespace fsdp::testing
