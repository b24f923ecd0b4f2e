// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/trial/invented_model.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/mapping/application/mapping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::string_view kInventedText = R"(tessera-mapping: 1
name: test
config: {i: layers, q: heads / groups, v: vocab}
params: {tp: 1}
sides: {a: , b: , c: }
states: {a: "o.{param:**}.{slot:*}", b: "o.{param:**}.{slot:*}"}
rules:
- a: {"l.{i}.{w:q|k}": (q tp d) c}
  b: {"m.{i}.{w:q|k}": (tp q d) c}
- a: {embed: v c}
  c: {embed: c v}
- a: {tail: f}
  b: {tail: f}
  of: states
- a: {none: f}
  b: {none: f}
  when: layers > 100
)";

std::vector<std::string> InventedNames(const InventedModel& model) {
  std::vector<std::string> names;
  for (const MappingTensor& tensor : model.tensors) {
    names.push_back(tensor.name);
  }
  return names;
}

Mapping InventedSample() {
  absl::StatusOr<Mapping> mapping = ParseMapping(kInventedText, "m.yaml");
  EXPECT_OK(mapping);
  return *std::move(mapping);
}

TEST(InventedModel, SatisfiesTheConfigAndTheFormulas) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    ASSERT_OK_AND_ASSIGN(
        const InventedModel model,
        InventModel(InventedSample(), {.side = "b",
                                       .config = R"({"layers": 2})",
                                       .settings = {{"tp", 3}},
                                       .seed = seed}));
    EXPECT_THAT(InventedNames(model),
                ElementsAre("l.0.k", "l.0.q", "l.1.k", "l.1.q"));
    const int64_t q = model.settings.at("heads") / model.settings.at("groups");
    EXPECT_EQ(q * model.settings.at("groups"), model.settings.at("heads"));
    EXPECT_EQ(model.settings.at("tp"), 3);
    EXPECT_FALSE(model.settings.contains("layers"));
    ASSERT_EQ(model.tensors[0].shape.size(), 2U);
    EXPECT_EQ(model.tensors[0].shape[0] % (3 * q), 0);
    EXPECT_OK(InventedSample().Map(model.tensors,
                                   {.from = "a",
                                    .to = "b",
                                    .config = R"({"layers": 2})",
                                    .settings = model.settings,
                                    .parts = MapOptions::Parts::kModel}));
  }
}

TEST(InventedModel, InventsStatesAndTheOtherSide) {
  const MappingSettings settings = {{"layers", 1}, {"vocab", 5}};
  ASSERT_OK_AND_ASSIGN(
      const InventedModel states,
      InventModel(InventedSample(),
                  {.side = "b", .settings = settings, .states = true}));
  EXPECT_THAT(InventedNames(states),
              ElementsAre("o.l.0.k.exp_avg", "o.l.0.k.step", "o.l.0.q.exp_avg",
                          "o.l.0.q.step", "o.tail.exp_avg", "o.tail.step"));
  EXPECT_THAT(states.tensors[1].shape, IsEmpty());
  ASSERT_OK_AND_ASSIGN(
      const InventedModel other,
      InventModel(InventedSample(), {.side = "c", .settings = settings}));
  ASSERT_THAT(InventedNames(other), ElementsAre("embed"));
  EXPECT_EQ(other.tensors[0].shape[0], 5);
  ASSERT_OK_AND_ASSIGN(
      const InventedModel none,
      InventModel(InventedSample(),
                  {.side = "c", .settings = settings, .states = true}));
  EXPECT_THAT(none.tensors, IsEmpty());
}

TEST(InventedModel, ReportsFormulasThatCannotBeSatisfied) {
  EXPECT_THAT(InventModel(InventedSample(), {.side = "z"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no side 'z'")));
  ASSERT_OK_AND_ASSIGN(
      const Mapping mapping,
      ParseMapping("tessera-mapping: 1\nname: t\nconfig: {n: 5 / 3}\n"
                   "sides: {a: , b: }\nrules:\n- {a: x, b: y}\n",
                   "m.yaml"));
  EXPECT_THAT(InventModel(mapping, {.side = "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no small numbers satisfy the formulas of "
                                 "m.yaml")));
  EXPECT_THAT(
      InventModel(InventedSample(),
                  {.side = "b", .config = R"({"layers": 1000000000000})"}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("m.yaml:8: the tensors have more than")));
  EXPECT_THAT(
      InventModel(InventedSample(),
                  {.side = "c", .config = R"({"vocab": 1000000000000})"}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("m.yaml:10: the tensors have more than")));
}

}  // namespace
}  // namespace dcp
