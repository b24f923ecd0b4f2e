// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/state_path.h"

#include <string>
#include <vector>

#include "dcp/base/limits.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StatePath Path(std::vector<PathElement> elements) {
  return StatePath(elements.begin(), elements.end());
}

class FlattenTest : public ::testing::Test {
 protected:
  Value Str(absl::string_view text) { return arena_.Str(text); }

  // Enough of a tensor to be recognised as one.
  Value Tensor() {
    return arena_.Call(arena_.Global("torch._utils", "_rebuild_tensor_v2"),
                       arena_.Tuple({}));
  }

  std::vector<std::string> Names(const Value& root) {
    const absl::StatusOr<std::vector<FlatValue>> flat = Flatten(root);
    EXPECT_OK(flat);
    std::vector<std::string> names;
    if (!flat.ok()) return names;
    for (const FlatValue& leaf : *flat) {
      names.push_back(leaf.fqn);
      EXPECT_EQ(PathToName(leaf.path), leaf.fqn);
    }
    return names;
  }

  ValueArena arena_;
};

TEST_F(FlattenTest, MappingsAreDescendedIntoInTheirOrder) {
  const Value model = arena_.Call(arena_.Global("collections", "OrderedDict"),
                                  arena_.Tuple({}));
  arena_.Update(model, {Str("blocks.0.w"), Tensor()});
  arena_.Update(model, {Str("a"), Tensor()});
  const Value root =
      arena_.Dict({Str("step"), Value::Int(3), Str("model"), model});
  EXPECT_THAT(Names(root), ElementsAre("step", "model.blocks.0.w", "model.a"));
  ASSERT_OK_AND_ASSIGN(const std::vector<FlatValue> flat, Flatten(root));
  EXPECT_EQ(flat[1].path, Path({"model", "blocks.0.w"}));
  EXPECT_EQ(flat[0].value.int_value(), 3);
}

TEST_F(FlattenTest, ListsAreLeavesUnlessTheyHoldTensorsOrMappings) {
  const Value plain = arena_.List({Value::Int(1), arena_.List({Str("x")})});
  EXPECT_THAT(Names(arena_.Dict({Str("l"), plain})), ElementsAre("l"));
  EXPECT_THAT(Names(arena_.Dict({Str("l"), arena_.List()})), ElementsAre("l"));
  const Value mixed =
      arena_.List({Tensor(), Value::Int(5), arena_.Dict({Str("q"), Str("z")})});
  EXPECT_THAT(Names(arena_.Dict({Str("l"), mixed})),
              ElementsAre("l.0", "l.1", "l.2.q"));
  const Value nested = arena_.List({arena_.List({Tensor()}), plain});
  EXPECT_THAT(Names(arena_.Dict({Str("l"), nested})),
              ElementsAre("l.0.0", "l.1"));
  const Value with_empty = arena_.List({arena_.Dict(), Value::Int(1)});
  EXPECT_THAT(Names(arena_.Dict({Str("a"), with_empty})), ElementsAre("a.1"));
}

TEST_F(FlattenTest, TuplesAreLeavesEvenWithTensors) {
  const Value tuple = arena_.Tuple({Tensor(), arena_.Dict()});
  EXPECT_THAT(Names(arena_.Dict({Str("t"), tuple})), ElementsAre("t"));
}

TEST_F(FlattenTest, EmptyMappingsLeaveNoEntries) {
  EXPECT_THAT(Names(arena_.Dict({Str("e"), arena_.Dict()})), IsEmpty());
  EXPECT_THAT(Names(arena_.Dict()), IsEmpty());
}

TEST_F(FlattenTest, KeysBecomeTextAsInPythonsStr) {
  const Value one = Value::Int(1);
  const Value root = arena_.Dict({
      Value::Int(0),
      one,
      Value(),
      one,
      Value::Bool(true),
      one,
      Value::Float(0.5),
      one,
      arena_.Tuple({Str("a"), Value::Int(2)}),
      one,
      Str(""),
      arena_.Dict({Str(""), one}),
  });
  EXPECT_THAT(Names(root),
              ElementsAre("0", "None", "True", "0.5", "('a', 2)", "."));
  const Value object = arena_.Dict({Tensor(), one});
  EXPECT_THAT(Flatten(object), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("cannot be part")));
  // Further down it is treated like any other value.
  EXPECT_THAT(Names(arena_.Dict({Str("d"), object})), ElementsAre("d"));
}

TEST_F(FlattenTest, RefusesANameThatOccursTwice) {
  const Value one = Value::Int(1);
  const Value root =
      arena_.Dict({Str("a"), arena_.Dict({Str("b"), one}), Str("a.b"), one});
  EXPECT_THAT(Flatten(root), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("the name a.b")));
  EXPECT_THAT(Flatten(arena_.Dict({Str("a"), one, Str("a"), one})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FlattenTest, OnlyMappingsAreStateDicts) {
  EXPECT_THAT(Flatten(arena_.List()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("this is a list: []")));
}

TEST_F(FlattenTest, NamesAreBounded) {
  const Value root =
      arena_.Dict({Str(std::string(kMaxNameBytes + 1, 'x')), Value::Int(1)});
  EXPECT_THAT(Flatten(root), StatusIs(absl::StatusCode::kResourceExhausted));
}

// Without remembering which lists are leaves this takes 2^200 steps.
TEST_F(FlattenTest, SharedListsAreLookedThroughOnce) {
  Value list = arena_.List({Value::Int(1)});
  for (int i = 0; i < 200; ++i) list = arena_.List({list, list});
  EXPECT_THAT(Names(arena_.Dict({Str("l"), list})), ElementsAre("l"));
}

TEST_F(FlattenTest, FlattenWholeKeepsEmptyContainersAndSteps) {
  const Value empty = arena_.Dict();
  const Value state = arena_.Dict({Value::Int(0), empty});
  const Value root = arena_.Dict({Str("state"), state, Str("none"), empty});
  ASSERT_OK_AND_ASSIGN(const std::vector<FlatValue> flat, FlattenWhole(root));
  ASSERT_EQ(flat.size(), 2u);
  EXPECT_EQ(flat[0].fqn, "state.0");
  EXPECT_EQ(flat[0].value.identity(), empty.identity());
  ASSERT_EQ(flat[0].steps.size(), 2u);
  EXPECT_EQ(flat[0].steps[0].container.identity(), root.identity());
  EXPECT_EQ(flat[0].steps[1].container.identity(), state.identity());
  EXPECT_EQ(flat[0].steps[1].key.int_value(), 0);
  EXPECT_THAT(Names(root), IsEmpty());
}

TEST(RenamePath, KeepsTheElementsThatAreStillTheEnd) {
  const StatePath path = Path({"model", "a.w"});
  EXPECT_EQ(RenamePath(path, "a.w"), Path({"a.w"}));
  EXPECT_EQ(RenamePath(path, "net.a.w"), Path({"net", "a.w"}));
  EXPECT_EQ(RenamePath(path, "model.a.w"), path);
  EXPECT_EQ(RenamePath(path, "other"), Path({"other"}));
  EXPECT_EQ(RenamePath(path, "x.model.a.w"), Path({"x", "model", "a.w"}));
  // "w" is only a part of the element.
  EXPECT_EQ(RenamePath(path, "w"), Path({"w"}));
}

TEST(RenamePath, IndicesStayIndicesUnlessTheyComeFirst) {
  const StatePath path = Path({"optim", "groups", int64_t{0}, "lr"});
  EXPECT_EQ(RenamePath(path, "opt.groups.0.lr"),
            Path({"opt", "groups", int64_t{0}, "lr"}));
  EXPECT_EQ(RenamePath(path, "0.lr"), Path({"0", "lr"}));
  EXPECT_EQ(RenamePath(path, "opt.groups.1.lr"), Path({"opt.groups.1", "lr"}));
}

}  // namespace
}  // namespace dcp
