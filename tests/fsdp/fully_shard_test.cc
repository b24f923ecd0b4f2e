// SPDX-License-Identifier: Apache-2.0
// The modules, meshes and options that fully_shard accepts, those that it
// refuses, and how. Cases with one rank run in this process.

#include "fsdp/fully_shard.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp_tower.h"
#include "tests/fsdp/module_snapshot.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ModulePtr = std::shared_ptr<torch::nn::Module>;

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
  // A Sequential has a forward.
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
  MlpTower tower(2);
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

}  // namespace
}  // namespace fsdp::testing
