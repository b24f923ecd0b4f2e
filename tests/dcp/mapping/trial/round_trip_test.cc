// SPDX-License-Identifier: Apache-2.0
// CheckRoundTrip and TryMapping, which have to agree, on models that are made
// up.
#include "dcp/mapping/trial/round_trip.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/trial/invented_model.h"
#include "dcp/mapping/trial/mapping_trial.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::string_view kRoundTripHead = R"(tessera-mapping: 1
name: test
config: {i: layers, q: heads / groups, tied: [tie, 0]}
params: {pad: 1}
)";

Mapping ParseRoundTrip(absl::string_view rest) {
  absl::StatusOr<Mapping> mapping =
      ParseMapping(absl::StrCat(kRoundTripHead, rest), "m.yaml");
  EXPECT_OK(mapping);
  return *std::move(mapping);
}

MappingTensor RoundTripTensor(std::string name, Dims shape) {
  return {.name = std::move(name), .shape = std::move(shape)};
}

TEST(RoundTrip, FollowsEqualElementsAndPaddings) {
  const Mapping mapping = ParseRoundTrip(
      "sides: {a: , b: }\ndrop: {a: [cache]}\nrules:\n"
      "- {a: [{x: v c}, {=0: pad c}], b: {y: (v + pad) c}}\n"
      "- {a: {\"l.{i}\": h}, b: {m: i (h 2)}, copies: {}}\n"
      "- {a: n, b: o, copies: {a: [n2], b: [o2]}, tolerates: {a: [n3]}}\n");
  const std::vector<MappingTensor> sources = {
      RoundTripTensor("cache", {7}), RoundTripTensor("l.0", {2}),
      RoundTripTensor("l.1", {2}),   RoundTripTensor("n", {2}),
      RoundTripTensor("n2", {2}),    RoundTripTensor("n3", {2}),
      RoundTripTensor("x", {3, 2})};
  MapOptions options = {
      .from = "a",
      .to = "b",
      .settings = {{"layers", 2}, {"heads", 2}, {"groups", 2}}};
  ASSERT_OK_AND_ASSIGN(const RoundTrip there,
                       CheckRoundTrip(mapping, sources, options));
  EXPECT_EQ(there.num_made, 4U);
  EXPECT_THAT(there.left_out, ElementsAre("cache", "n3"));
  ASSERT_OK_AND_ASSIGN(const MappingTrial trial,
                       TryMapping(mapping, sources, options, 1));
  EXPECT_EQ(trial.num_made, 4U);
  EXPECT_EQ(trial.num_bytes, 4U * 23);
  ASSERT_OK_AND_ASSIGN(const MappedTensors b, mapping.Map(sources, options));
  std::swap(options.from, options.to);
  EXPECT_OK(CheckRoundTrip(mapping, b.tensors, options));
  EXPECT_OK(TryMapping(mapping, b.tensors, options, 1));
}

TEST(RoundTrip, ReportsLosses) {
  // "nabc" is divided at another place than where it was put together.
  const Mapping mapping = ParseRoundTrip(
      "sides: {a: , b: }\nrules:\n- {a: \"{u:*}.{v:*}\", b: "
      "\"n{u:*}{v:*}\"}\n");
  const std::vector<MappingTensor> sources = {RoundTripTensor("a.bc", {2})};
  const MapOptions options = {.from = "a", .to = "b"};
  const auto says = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ab.c"));
  EXPECT_THAT(CheckRoundTrip(mapping, sources, options).status(), says);
  EXPECT_THAT(TryMapping(mapping, sources, options, 1).status(), says);
  EXPECT_OK(CheckRoundTrip(
      mapping, std::vector<MappingTensor>{RoundTripTensor("ab.c", {2})},
      options));
}

TEST(RoundTrip, ErrorsOnTheWayBackAreMarked) {
  // The sizes of f and g are unknown once they are one dimension.
  const Mapping mapping = ParseRoundTrip(
      "sides: {a: , b: }\nrules:\n- {a: {x: f g}, b: {y: (f g)}}\n");
  const std::vector<MappingTensor> sources = {RoundTripTensor("x", {2, 3})};
  const auto says = StatusIs(
      absl::StatusCode::kInvalidArgument,
      AllOf(HasSubstr("on the way back from b: m.yaml:7: "),
            HasSubstr("cannot determine the sizes of f and g in (f g)")));
  const MapOptions options = {.from = "a", .to = "b"};
  EXPECT_THAT(CheckRoundTrip(mapping, sources, options).status(), says);
  EXPECT_THAT(TryMapping(mapping, sources, options, 1).status(), says);
}

TEST(RoundTrip, LargeTensorsAreNotTried) {
  const Mapping mapping =
      ParseRoundTrip("sides: {a: , b: }\nrules:\n- {a: x, b: y}\n");
  const std::vector<MappingTensor> sources = {
      RoundTripTensor("x", {1 << 30, 1 << 20})};
  const MapOptions options = {.from = "a", .to = "b"};
  EXPECT_OK(CheckRoundTrip(mapping, sources, options));
  EXPECT_THAT(TryMapping(mapping, sources, options, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 16777216 elements")));
}

}  // namespace
}  // namespace dcp
