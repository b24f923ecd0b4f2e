// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/state_leaves.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Names, and how many steps each path has.
std::vector<std::pair<std::string, size_t>> LeafNames(StateDict state) {
  std::vector<std::pair<std::string, size_t>> names;
  const auto leaves = FlattenState(state);
  EXPECT_OK(leaves);
  for (const StateLeaf& leaf : *leaves) {
    names.emplace_back(leaf.fqn, leaf.path.size());
  }
  return names;
}

// The table of the format's description.
TEST(StateLeaves, NamesMatchPyTorch) {
  const at::Tensor t = at::ones({2});
  EXPECT_THAT(LeafNames({{"model", StateDict{{"blocks.0.w", t}}}}),
              ElementsAre(Pair("model.blocks.0.w", 2)));
  EXPECT_THAT(
      LeafNames({{"optim",
                  StateDict{{"param_groups",
                             StateList{StateDict{
                                 {"lr", .1}, {"params", StateList{"w"}}}}}}}}),
      ElementsAre(Pair("optim.param_groups.0.lr", 4),
                  Pair("optim.param_groups.0.params", 4)));
  EXPECT_THAT(LeafNames({{"l", StateList{t, 5, StateDict{{"q", "z"}}}}}),
              ElementsAre(Pair("l.0", 2), Pair("l.1", 2), Pair("l.2.q", 3)));
  EXPECT_THAT(LeafNames({{"l", StateList{1, 2, 3}}}),
              ElementsAre(Pair("l", 1)));
  EXPECT_THAT(LeafNames({{"l", StateList{1, StateList{2, StateList{}}}}}),
              ElementsAre(Pair("l", 1)));
  EXPECT_THAT(LeafNames({{"l", StateList{1, StateList{t}}}}),
              ElementsAre(Pair("l.0", 2), Pair("l.1.0", 3)));
  EXPECT_THAT(LeafNames({{"t", StateTuple{{t, 1}}}}),
              ElementsAre(Pair("t", 1)));
  EXPECT_THAT(LeafNames({{"e", StateDict{}}}), IsEmpty());
  EXPECT_THAT(LeafNames({{"", StateDict{{"", 2}}}}), ElementsAre(Pair(".", 2)));
}

TEST(StateLeaves, RefusesDuplicateNames) {
  StateDict state{{"a.b", 1}, {"a", StateDict{{"b", 2}}}};
  EXPECT_THAT(FlattenState(state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.b")));
}

class Scheduler final : public Stateful {
 public:
  absl::StatusOr<StateDict> state_dict() override {
    if (epoch < 0) return absl::FailedPreconditionError("not started");
    return StateDict{{"epoch", epoch}};
  }
  absl::Status load_state_dict(const StateDict& state) override {
    epoch = *state.find("epoch")->get_if<int64_t>();
    return absl::OkStatus();
  }
  int64_t epoch = 3;
};

TEST(StateLeaves, ObjectsAreReplacedByTheirStateAndGetItBack) {
  const auto scheduler = std::make_shared<Scheduler>();
  StateDict state{{"nested", StateDict{{"scheduler", scheduler}}}, {"n", 1}};
  ASSERT_OK_AND_ASSIGN(StateDict expanded, ExpandState(state));
  EXPECT_THAT(LeafNames(expanded),
              ElementsAre(Pair("nested.scheduler.epoch", 3), Pair("n", 1)));
  ASSERT_OK_AND_ASSIGN(const std::vector<StateLeaf> leaves,
                       FlattenState(expanded));
  *leaves[0].value = 8;
  *leaves[1].value = 9;
  ASSERT_OK(RestoreState(expanded, state));
  EXPECT_EQ(scheduler->epoch, 8);
  EXPECT_EQ(*state.find("n")->get_if<int64_t>(), 9);
  scheduler->epoch = -1;
  EXPECT_THAT(ExpandState(state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "nested: scheduler: not started"));
}

// Notes which objects are asked and told; fails on demand.
class Recorder final : public Stateful {
 public:
  Recorder(std::string name, std::string& calls, bool fails = false)
      : name_(std::move(name)), calls_(calls), fails_(fails) {}
  absl::StatusOr<StateDict> state_dict() override {
    calls_ += name_;
    if (fails_) return absl::UnavailableError("not now");
    return StateDict{{"name", name_}};
  }
  absl::Status load_state_dict(const StateDict&) override {
    calls_ += name_;
    return fails_ ? absl::UnavailableError("not now") : absl::OkStatus();
  }

 private:
  const std::string name_;
  std::string& calls_;
  const bool fails_;
};

TEST(StateLeaves, VisitsObjectsInTheSameOrderForAnyKeyOrder) {
  std::string calls;
  const auto make = [&](const char* name) {
    return std::make_shared<Recorder>(name, calls);
  };
  StateDict state{{"c", make("3")},
                  {"b", StateDict{{"y", make("2")}, {"x", make("1")}}},
                  {"d", StateList{make("4"), make("5")}},
                  {"a", make("0")}};
  ASSERT_OK_AND_ASSIGN(const StateDict expanded, ExpandState(state));
  EXPECT_EQ(calls, "012345");
  calls.clear();
  ASSERT_OK(RestoreState(expanded, state));
  EXPECT_EQ(calls, "012345");
  // The dict keeps the order in which keys were added.
  EXPECT_EQ(expanded.begin()->first, "c");
}

TEST(StateLeaves, AllObjectsAreVisitedAlsoAfterOneThatFailed) {
  // Another rank's source does not fail, and may wait for later messages.
  std::string calls;
  StateDict state{{"b", std::make_shared<Recorder>("1", calls)},
                  {"a", std::make_shared<Recorder>("0", calls, true)},
                  {"c", std::make_shared<Recorder>("2", calls)}};
  EXPECT_THAT(ExpandState(state),
              StatusIs(absl::StatusCode::kUnavailable, "a: not now"));
  EXPECT_EQ(calls, "012");
  calls.clear();
  const StateDict none;
  EXPECT_THAT(RestoreState({{"a", none}, {"b", none}, {"c", none}}, state),
              StatusIs(absl::StatusCode::kUnavailable, "a: not now"));
  EXPECT_EQ(calls, "012");
}

}  // namespace
}  // namespace fsdp
