// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/save/save_plan_cache.h"

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;

SaveState SomeState() {
  SaveState state;
  state.tensors = {{.fqn = "w",
                    .dtype = DType::kFloat32,
                    .shape = {4, 4},
                    .box = {{0, 0}, {2, 4}}},
                   {.fqn = "b",
                    .path = {PathElement("b")},
                    .dtype = DType::kInt64,
                    .shape = {3},
                    .box = {{0}, {3}}}};
  state.objects = {{.fqn = "step", .value = Value::Int(1)}};
  return state;
}

TEST(SavePlanCache, IsEmptyAtFirst) {
  EXPECT_FALSE(SavePlanCache().Holds(SaveState(), 0, 1));
  EXPECT_EQ(SavePlanCache().plan_id(), "");
}

TEST(SavePlanCache, FitsTheSameStateWithOtherValues) {
  SavePlanCache cache;
  cache.Store(SomeState(), 1, 2, "id", {0, 2});
  EXPECT_EQ(cache.plan_id(), "id");
  EXPECT_THAT(cache.items(), ElementsAre(0, 2));
  SaveState state = SomeState();
  EXPECT_TRUE(cache.Holds(state, 1, 2));
  state.objects[0].value = Value::Int(2);
  testing::MemorySource source("");
  state.tensors[0].source = &source;
  EXPECT_TRUE(cache.Holds(state, 1, 2));
}

TEST(SavePlanCache, FitsNoOtherState) {
  SavePlanCache cache;
  cache.Store(SomeState(), 1, 2, "id", {0, 2});
  EXPECT_FALSE(cache.Holds(SomeState(), 0, 2));
  EXPECT_FALSE(cache.Holds(SomeState(), 1, 3));
  const std::vector<std::function<void(SaveState&)>> changes = {
      [](SaveState& s) { s.tensors[0].fqn = "v"; },
      [](SaveState& s) { s.tensors[1].path = {PathElement("c")}; },
      [](SaveState& s) { s.tensors[0].dtype = DType::kInt32; },
      [](SaveState& s) {
        s.tensors[0].shape = {5, 4};
      },
      [](SaveState& s) {
        s.tensors[0].box.offsets = {1, 0};
      },
      [](SaveState& s) {
        s.tensors[0].box.sizes = {1, 4};
      },
      [](SaveState& s) { s.tensors.pop_back(); },
      [](SaveState& s) { s.tensors.push_back(s.tensors[0]); },
      [](SaveState& s) { std::swap(s.tensors[0], s.tensors[1]); },
      [](SaveState& s) { s.objects[0].fqn = "epoch"; },
      [](SaveState& s) { s.objects[0].path = {PathElement("step")}; },
      [](SaveState& s) { s.objects.clear(); },
      [](SaveState& s) { s.status = absl::DataLossError("unread"); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SaveState state = SomeState();
    changes[i](state);
    EXPECT_FALSE(cache.Holds(state, 1, 2)) << i;
  }
}

}  // namespace
}  // namespace dcp
