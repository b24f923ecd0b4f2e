// SPDX-License-Identifier: Apache-2.0

#include "config/explain/group_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Each group's name and parameter count.
std::vector<std::pair<std::string, size_t>> Plan(
    const ShardingConfig& sharding) {
  const std::vector<ParameterShape> parameters = {
      {"model.embed.weight", {100, 8}},
      {"model.layers.0.experts.0.weight", {16, 8}},
      {"model.layers.0.experts.1.weight", {16, 8}},
      {"model.layers.0.norm.weight", {8}},
      {"model.layers.1.mlp.weight", {16, 8}},
      {"model.norm.weight", {8}},
      {"lm_head.weight", {100, 8}},
      {"scale", {}}};
  std::vector<std::pair<std::string, size_t>> sizes;
  for (const GroupPlan& group : plan_groups(sharding, parameters)) {
    sizes.emplace_back(group.name, group.parameters.size());
  }
  return sizes;
}

TEST(PlanGroups, LayersAreTheOutermostNumberedModules) {
  EXPECT_THAT(Plan({.auto_wrap_policy = AutoWrapPolicy::kTransformerBasedWrap}),
              ElementsAre(Pair("model.layers.0", 3), Pair("model.layers.1", 1),
                          Pair("", 4)));
}

TEST(PlanGroups, NoWrapHasOnlyTheRoot) {
  EXPECT_THAT(Plan({.auto_wrap_policy = AutoWrapPolicy::kNoWrap}),
              ElementsAre(Pair("", 8)));
}

TEST(PlanGroups, DirectChildrenMeansTheRootsChildren) {
  EXPECT_THAT(Plan({.auto_wrap_policy = AutoWrapPolicy::kDirectChildren}),
              ElementsAre(Pair("model", 6), Pair("lm_head", 1), Pair("", 1)));
}

TEST(PlanGroups, ChildrenOfAListCountAsTheRoots) {
  std::vector<std::string> names;
  for (const GroupPlan& group :
       plan_groups({.auto_wrap_policy = AutoWrapPolicy::kDirectChildren},
                   {{"layers.0.a.weight", {4}}, {"layers.1.weight", {4}}})) {
    names.push_back(group.name);
  }
  EXPECT_THAT(names, ElementsAre("layers.0", "layers.1", ""));
}

TEST(PlanGroups, BySizeWorksFromTheInsideOut) {
  // The experts have 128 each and layers.0 has 264 in total. Modules below 200
  // stay with the enclosing module, and lists are not picked.
  EXPECT_THAT(Plan({.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap,
                    .min_num_params = 200}),
              ElementsAre(Pair("model.embed", 1), Pair("model.layers.0", 3),
                          Pair("lm_head", 1), Pair("", 3)));
  EXPECT_THAT(Plan({.auto_wrap_policy = AutoWrapPolicy::kSizeBasedWrap,
                    .min_num_params = 1'000'000}),
              ElementsAre(Pair("", 8)));
}

TEST(PlanGroups, NoParametersGiveOnlyTheRoot) {
  EXPECT_EQ(plan_groups({}, {}).size(), 1u);
}

}  // namespace
}  // namespace fsdp
