// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/inert_value.h"

#include "dcp/format/pickle/pickle_reader.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

Value New(ValueArena& arena, const char* module, const char* name) {
  return arena.New(arena.Global(module, name), arena.Tuple({}));
}

TEST(InertValue, EveryGlobalMustBeKnown) {
  ValueArena arena;
  const Value known = New(arena, "argparse", "Namespace");
  arena.SetState(known, arena.Dict({arena.Str("lr"), Value::Float(0.1)}));
  EXPECT_OK(CheckInert(arena.Tuple({known, Value(), arena.Str("x")})));
  const auto refused = [&](const Value& value) {
    EXPECT_THAT(CheckInert(value),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("global mylib.Config is not allowed")));
  };
  const Value config = New(arena, "mylib", "Config");
  refused(config);
  refused(config.callable());
  refused(arena.Dict({arena.Str("a"), arena.List({config})}));
  const Value holder = New(arena, "argparse", "Namespace");
  arena.SetState(holder, arena.Dict({arena.Str("c"), config}));
  refused(holder);
  const Value items = New(arena, "collections", "OrderedDict");
  arena.Update(items, {config, Value()});
  refused(items);
  const Value elements = New(arena, "collections", "deque");
  arena.Append(elements, config);
  refused(elements);
}

TEST(InertValue, OpaqueObjectsHaveTheirClassName) {
  ValueArena arena;
  const Value config = New(arena, "mylib", "Config");
  arena.SetState(config, arena.Dict({arena.Str("lr"), Value::Float(0.1),
                                     arena.Str("dtype"),
                                     arena.Global("torch", "bfloat16")}));
  EXPECT_EQ(OpaqueClass(config), "mylib.Config");
  EXPECT_FALSE(CheckInert(config).ok());
  const auto call = [&](Value arg) {
    return arena.Call(arena.Global("mylib", "Kind"), arena.Tuple({arg}));
  };
  EXPECT_EQ(OpaqueClass(call(Value::Int(1))), "mylib.Kind");
  EXPECT_EQ(OpaqueClass(call(arena.Str("a"))), "mylib.Kind");
  // A function with other arguments, and objects with other unknown classes.
  EXPECT_EQ(OpaqueClass(call(arena.List())), "");
  EXPECT_EQ(
      OpaqueClass(arena.Call(arena.Global("mylib", "Kind"), arena.Tuple({}))),
      "");
  const Value holder = New(arena, "mylib", "Holder");
  arena.SetState(holder, arena.Dict({arena.Str("c"), config}));
  EXPECT_EQ(OpaqueClass(holder), "");
  EXPECT_EQ(OpaqueClass(New(arena, "argparse", "Namespace")), "");
  EXPECT_EQ(OpaqueClass(arena.List({config})), "");
  EXPECT_EQ(OpaqueClass(Value::Int(1)), "");
}

TEST(InertValue, WholeModulesAreNamedWithAdvice) {
  ValueArena arena;
  const Value module = New(arena, "models", "Net");
  arena.SetState(module, arena.Dict({arena.Str("_parameters"), arena.Dict(),
                                     arena.Str("_modules"), arena.Dict()}));
  EXPECT_EQ(PickledModuleClass(module), "models.Net");
  EXPECT_EQ(OpaqueClass(module), "");
  EXPECT_EQ(PickledModuleClass(New(arena, "models", "Net")), "");
  EXPECT_THAT(CheckInert(arena.Tuple({module})),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("models.Net, which requires its code")));
}

TEST(InertValue, AnObjectNeedsItsEnclosingObject) {
  ValueArena arena;
  const Value parent = New(arena, "omegaconf.dictconfig", "DictConfig");
  const Value child = New(arena, "omegaconf.nodes", "AnyNode");
  arena.SetState(child,
                 arena.Dict({arena.Str("_parent"), arena.Enclosing(parent)}));
  arena.SetState(parent, arena.Dict({arena.Str("a"), child}));
  EXPECT_OK(CheckInert(parent));
  EXPECT_OK(CheckInert(arena.List({parent, child})));
  EXPECT_THAT(CheckInert(child),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("omegaconf.dictconfig.DictConfig")));
}

}  // namespace
}  // namespace dcp
