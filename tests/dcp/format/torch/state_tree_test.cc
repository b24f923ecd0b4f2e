// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/state_tree.h"

#include <string>
#include <vector>

#include "dcp/format/torch/state_path.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

StatePath TreePath(std::vector<PathElement> elements) {
  return StatePath(elements.begin(), elements.end());
}

TEST(CheckPaths, AcceptsPathsOfOneNestedDict) {
  EXPECT_OK(CheckPaths({TreePath({"a"}), TreePath({"b", int64_t{0}, "lr"}),
                        TreePath({"b", int64_t{1}, "lr"}), TreePath({"c", "0"}),
                        TreePath({"d", int64_t{7}})}));
  EXPECT_OK(CheckPaths({}));
}

TEST(CheckPaths, RefusesConflictingPaths) {
  const auto refused = [](std::vector<StatePath> paths,
                          absl::string_view message) {
    EXPECT_THAT(CheckPaths(paths), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr(message)));
  };
  refused({TreePath({})}, "empty");
  refused({TreePath({"w"}), TreePath({"w"})}, "twice");
  refused({TreePath({"w"}), TreePath({"w", "x"})}, "runs through");
  refused({TreePath({"w", "x"}), TreePath({"w"})}, "beginning of another");
  refused({TreePath({"w", "x"}), TreePath({"w", int64_t{0}})}, "an index");
  refused({TreePath({int64_t{0}})}, "an index");
  refused({TreePath({"w", int64_t{-1}})}, "negative");
  refused({TreePath({"w", int64_t{1} << 40})}, "1099511627776 exceeds");
  refused({TreePath({"v", int64_t{40000}}), TreePath({"w", int64_t{40000}})},
          "together exceed");
  refused({StatePath(501, PathElement("x"))}, "501 elements exceeds 500");
}

TEST(Unflatten, IsTheInverseOfFlatten) {
  ValueArena arena;
  const Value root = arena.Dict({
      arena.Str("model"),
      arena.Dict({arena.Str("a.w"), Value::Int(1), arena.Str("b"),
                  arena.Tuple({Value::Int(2)})}),
      arena.Str("groups"),
      arena.List({arena.Dict({arena.Str("lr"), Value::Float(0.1)})}),
      arena.Str("step"),
      Value::Int(3),
  });
  ASSERT_OK_AND_ASSIGN(const std::vector<FlatValue> flat, Flatten(root));
  ASSERT_OK_AND_ASSIGN(const Value again, Unflatten(arena, flat));
  EXPECT_TRUE(DeepEqual(root, again)) << ToString(again);
}

TEST(Unflatten, FillsGapsWithNoneAndNamesPathlessValues) {
  ValueArena arena;
  const std::vector<FlatValue> leaves = {
      {.fqn = "a.2",
       .path = TreePath({"a", int64_t{2}}),
       .value = Value::Int(1)},
      {.fqn = "b.c", .path = {}, .value = Value::Int(2)},
      {.fqn = "a.0",
       .path = TreePath({"a", int64_t{0}}),
       .value = Value::Int(3)},
  };
  ASSERT_OK_AND_ASSIGN(const Value root, Unflatten(arena, leaves));
  EXPECT_EQ(ToString(root), "{'a': [3, None, 1], 'b.c': 2}");
  const std::vector<FlatValue> twice = {leaves[1], leaves[1]};
  EXPECT_THAT(Unflatten(arena, twice),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

class UnflattenLikeTest : public ::testing::Test {
 protected:
  Value Str(absl::string_view text) { return arena_.Str(text); }

  Value OrderedDict(absl::Span<const Value> items) {
    const Value call = arena_.Call(arena_.Global("collections", "OrderedDict"),
                                   arena_.Tuple({}));
    arena_.Update(call, items);
    return call;
  }

  Value Again(absl::Span<const FlatValue> leaves) {
    const absl::StatusOr<Value> root =
        UnflattenLike(arena_, leaves, [](const Value& value) { return value; });
    EXPECT_OK(root);
    return root.ok() ? *root : Value();
  }

  std::vector<FlatValue> Leaves(const Value& root) {
    absl::StatusOr<std::vector<FlatValue>> flat = FlattenWhole(root);
    EXPECT_OK(flat);
    return *std::move(flat);
  }

  // The leaves with names that begin with "model.", without that.
  std::vector<FlatValue> ModelLeaves(const Value& root) {
    std::vector<FlatValue> model;
    for (FlatValue& leaf : Leaves(root)) {
      if (leaf.fqn.substr(0, 6) != "model.") continue;
      leaf.fqn = leaf.fqn.substr(6);
      leaf.path = RenamePath(leaf.path, leaf.fqn);
      model.push_back(std::move(leaf));
    }
    return model;
  }

  ValueArena arena_;
};

TEST_F(UnflattenLikeTest, RestoresContainersAndKeys) {
  const Value model = OrderedDict({Str("a.w"), Value::Int(1)});
  arena_.SetState(model, arena_.Dict({Str("_metadata"), arena_.Dict()}));
  const Value counts =
      arena_.Call(arena_.Global("collections", "defaultdict"),
                  arena_.Tuple({arena_.Global("builtins", "int")}));
  arena_.Update(counts,
                {arena_.Tuple({Value::Int(1), Str("x")}), Value::Int(2)});
  arena_.Update(counts, {Value(), Value::Int(3)});
  const Value root = arena_.Dict({
      Str("model"),
      model,
      Str("counts"),
      counts,
      Str("empty"),
      OrderedDict({}),
      Str("state"),
      arena_.Dict({Value::Int(0), arena_.Dict({Str("step"), Value::Int(4)})}),
      Str("groups"),
      arena_.List({arena_.Dict(), arena_.Dict({Str("lr"), Value::Float(0.1)})}),
  });
  const Value again = Again(Leaves(root));
  EXPECT_TRUE(DeepEqual(root, again, /*exact=*/true)) << ToString(again, 1000);
}

TEST_F(UnflattenLikeTest, ASharedContainerStaysSharedWhileEqual) {
  const Value shared = arena_.Dict({Str("w"), Value::Int(1)});
  const Value root = arena_.Dict({Str("a"), shared, Str("b"), shared});
  std::vector<FlatValue> leaves = Leaves(root);
  const Value alike = Again(leaves);
  EXPECT_EQ(alike.items()[1].identity(), alike.items()[3].identity());
  leaves[1].value = Value::Int(2);
  const Value unlike = Again(leaves);
  EXPECT_EQ(ToString(unlike), "{'a': {'w': 1}, 'b': {'w': 2}}");
}

TEST_F(UnflattenLikeTest, ARenamedLeafKeepsItsContainer) {
  const Value model = OrderedDict({Str("a.w"), Value::Int(1)});
  arena_.SetState(model, arena_.Dict({Str("_metadata"), arena_.Dict()}));
  const Value root = arena_.Dict({Str("model"), model, Str("x"), Str("y")});
  EXPECT_TRUE(DeepEqual(Again(ModelLeaves(root)), model, /*exact=*/true));
}

TEST_F(UnflattenLikeTest, LeavesOfSeveralContainersMakeADict) {
  const Value root =
      arena_.Dict({Str("model"), OrderedDict({Str("a"), Value::Int(1)}),
                   Str("step"), Value::Int(2)});
  std::vector<FlatValue> leaves = ModelLeaves(root);
  leaves.push_back(Leaves(root)[1]);
  const Value merged = Again(leaves);
  EXPECT_TRUE(merged.is(Value::Kind::kDict));
  EXPECT_EQ(ToString(merged), "{'a': 1, 'step': 2}");
}

}  // namespace
}  // namespace dcp
