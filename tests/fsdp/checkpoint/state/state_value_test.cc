// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/state_value.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/state/state_keys.h"

namespace fsdp {
namespace {

TEST(StateDict, KeepsKeysUniqueAndInOrder) {
  StateDict dict = {{"b", 1}, {"a", 2}, {"b", 3}};
  dict["c"] = "text";
  EXPECT_THAT(testing::StateKeys(dict), ::testing::ElementsAre("b", "a", "c"));
  EXPECT_EQ(*dict.find("b")->get_if<int64_t>(), 3);
  EXPECT_EQ(*std::as_const(dict).find("c")->get_if<std::string>(), "text");
  EXPECT_EQ(dict.find("d"), nullptr);
  EXPECT_EQ(std::as_const(dict).find("d"), nullptr);
  EXPECT_TRUE(dict["d"].is_none());
  EXPECT_EQ(dict.size(), 4u);
}

TEST(StateDict, FindsRemainingKeysAfterErasing) {
  StateDict dict = {{"a", 1}, {"b", 2}, {"c", 3}};
  EXPECT_TRUE(dict.erase("a"));
  EXPECT_FALSE(dict.erase("a"));
  EXPECT_EQ(*dict.find("b")->get_if<int64_t>(), 2);
  EXPECT_EQ(*dict.find("c")->get_if<int64_t>(), 3);
  dict["a"] = 4;
  EXPECT_THAT(testing::StateKeys(dict), ::testing::ElementsAre("b", "c", "a"));
  EXPECT_EQ(*dict.find("a")->get_if<int64_t>(), 4);
}

TEST(StateDict, CopiesAreDeepButTensorsAlias) {
  const at::Tensor weight = at::zeros({2});
  const StateDict dict = {{"net", StateDict({{"w", weight}, {"n", 1}})}};
  StateDict copy = dict;
  (*copy.find("net")->get_if<StateDict>())["n"] = 2;
  const StateDict& net = *dict.find("net")->get_if<StateDict>();
  EXPECT_EQ(*net.find("n")->get_if<int64_t>(), 1);
  copy.find("net")->get_if<StateDict>()->find("w")->get_if<at::Tensor>()->fill_(
      3);
  EXPECT_EQ(weight[0].item<float>(), 3);
}

struct Counter final : Stateful {
  absl::StatusOr<StateDict> state_dict() override { return StateDict(); }
  absl::Status load_state_dict(const StateDict& /*state*/) override {
    return absl::OkStatus();
  }
};

TEST(StateValue, HoldsEachKind) {
  EXPECT_TRUE(StateValue().is_none());
  EXPECT_EQ(*StateValue(true).get_if<bool>(), true);
  EXPECT_EQ(*StateValue(size_t{7}).get_if<int64_t>(), 7);
  EXPECT_EQ(*StateValue(0.5).get_if<double>(), 0.5);
  EXPECT_EQ(*StateValue("x").get_if<std::string>(), "x");
  EXPECT_EQ(StateValue(StateBytes{"y"}).get_if<StateBytes>()->bytes, "y");
  EXPECT_EQ(StateValue(StateList{1, "a"}).get_if<StateList>()->size(), 2u);
  EXPECT_EQ(StateValue(StateTuple{{1, 2}}).get_if<StateTuple>()->items.size(),
            2u);
  EXPECT_EQ(StateValue(1).get_if<bool>(), nullptr);
  const auto counter = std::make_shared<Counter>();
  EXPECT_EQ(StateValue(counter).get_if<std::shared_ptr<Stateful>>()->get(),
            counter.get());
}

}  // namespace
}  // namespace fsdp
