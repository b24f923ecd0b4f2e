// SPDX-License-Identifier: Apache-2.0

#include "dcp/mapping/language/model_sizes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/mapping_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

MappingFile File(absl::string_view config) {
  absl::StatusOr<MappingFile> file = ReadMappingFile(
      absl::StrCat("tessera-mapping: 1\nname: test\nparams: {tp: 2}\n"
                   "sides: {a: , b: }\nrules: [{a: x, b: y, when: flag}]\n"
                   "config:\n",
                   config),
      "m.yaml");
  EXPECT_OK(file);
  return *std::move(file);
}

constexpr absl::string_view kSizesConfig = R"({
  "heads": 32, "dim": 4096, "groups": null, "tied": true, "theta": 1e6,
  "minus": -3, "name": "llama", "list": [1, 2], "big": 18446744073709551615,
  "rope": {"factor": 8, "deep": {"er": 9}},
  "text_config": {"layers": 40, "heads": 16}
})";

TEST(ModelSizes, LooksInSettingsFileParamsAndConfig) {
  const MappingFile file = File(
      "  head: heads\n  group: [groups, heads]\n  d: dim / head\n"
      "  pad: round_up(d, tp)\n");
  ASSERT_OK_AND_ASSIGN(ModelSizes sizes,
                       ModelSizes::Create(file, kSizesConfig, {}));
  EXPECT_THAT(sizes.FindValue("d"), IsOkAndHolds(128));
  EXPECT_THAT(sizes.FindValue("group"), IsOkAndHolds(32));
  EXPECT_THAT(sizes.FindValue("tp"), IsOkAndHolds(2));
  EXPECT_THAT(sizes.FindValue("tied"), IsOkAndHolds(1));
  EXPECT_THAT(sizes.FindValue("minus"), IsOkAndHolds(-3));
  EXPECT_THAT(sizes.FindValue("rope.factor"), IsOkAndHolds(8));
  EXPECT_THAT(sizes.FindValue("rope.deep.er"), IsOkAndHolds(9));
  EXPECT_THAT(sizes.FindValue("layers"), IsOkAndHolds(40));
  EXPECT_THAT(
      sizes.used(),
      ElementsAre(Pair("dim", 4096), Pair("heads", 32), Pair("minus", -3),
                  Pair("rope.deep.er", 9), Pair("rope.factor", 8),
                  Pair("text_config.layers", 40), Pair("tied", 1)));
  EXPECT_EQ(sizes.Explain("d", 128), "d = dim / head = 128");
  EXPECT_EQ(sizes.Explain("c", 7), "c = 7");
}

TEST(ModelSizes, SettingsReplaceAllOtherValues) {
  const MappingFile file = File("  head: heads\n  d: dim / head\n");
  ASSERT_OK_AND_ASSIGN(
      ModelSizes sizes,
      ModelSizes::Create(file, kSizesConfig,
                         {{"dim", 64}, {"tp", 8}, {"head", 4}, {"flag", 1}}));
  EXPECT_THAT(sizes.FindValue("d"), IsOkAndHolds(16));
  EXPECT_THAT(sizes.FindValue("tp"), IsOkAndHolds(8));
  EXPECT_THAT(
      ModelSizes::Create(file, kSizesConfig, {{"heats", 4}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("the setting heats is not a name in m.yaml; is")));
}

TEST(ModelSizes, OnlyNamesInTheFileAreSizes) {
  const MappingFile file = File("  head: heads\n  n: minus\n  g: groups\n");
  ASSERT_OK_AND_ASSIGN(ModelSizes sizes,
                       ModelSizes::Create(file, kSizesConfig, {}));
  EXPECT_THAT(sizes.FindKnownSize("head"),
              IsOkAndHolds(std::optional<uint64_t>(32)));
  EXPECT_THAT(sizes.FindKnownSize("tp"),
              IsOkAndHolds(std::optional<uint64_t>(2)));
  EXPECT_THAT(sizes.FindKnownSize("dim"), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(sizes.FindKnownSize("g"), IsOkAndHolds(std::nullopt));
  EXPECT_EQ(sizes.WhyUnknown("g"),
            "groups is in neither config.json nor the settings; needed by g "
            "(m.yaml:9)");
  EXPECT_THAT(
      sizes.FindKnownSize("n"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("n is -3")));
}

TEST(ModelSizes, RefusesValuesThatAreNotIntegers) {
  const MappingFile file = File("  head: heads\n");
  ASSERT_OK_AND_ASSIGN(ModelSizes sizes,
                       ModelSizes::Create(file, kSizesConfig, {}));
  for (const absl::string_view name :
       {"theta", "name", "list", "big", "rope"}) {
    EXPECT_THAT(sizes.FindValue(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not an integer")))
        << name;
  }
  EXPECT_THAT(sizes.FindValue("missing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
  EXPECT_THAT(sizes.FindValue("list.0"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("list.0")));
}

TEST(ModelSizes, RefusesNamesThatReferToEachOther) {
  const MappingFile file = File("  x: y + 1\n  y: [z, x]\n  s: s\n");
  ASSERT_OK_AND_ASSIGN(ModelSizes sizes, ModelSizes::Create(file, "", {}));
  EXPECT_THAT(sizes.FindValue("x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("x refers to itself: x, y")));
  EXPECT_THAT(sizes.FindValue("s"), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("s refers to itself")));
}

TEST(ModelSizes, HostileFilesEndQuickly) {
  // Each name has two formulas that need the next one, which has no value.
  std::string fails;
  std::string chain;
  for (int n = 0; n < 200; ++n) {
    if (n < 30) {
      absl::StrAppend(&fails, "  f", n, ": [f", n + 1, ", f", n + 1, " + 1]\n");
    }
    absl::StrAppend(&chain, "  c", n, ": c", n + 1, "\n");
  }
  const MappingFile file = File(fails + chain);
  ASSERT_OK_AND_ASSIGN(ModelSizes sizes, ModelSizes::Create(file, "", {}));
  EXPECT_THAT(sizes.FindValue("f0"), StatusIs(absl::StatusCode::kNotFound,
                                              HasSubstr("f30 is in neither")));
  EXPECT_THAT(
      sizes.FindValue("c0"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 32")));
}

TEST(ModelSizes, RefusesOtherJson) {
  const MappingFile file = File("  head: heads\n");
  for (const absl::string_view text : {"[1]", "3", "{", "{} {}", "\"x\""}) {
    EXPECT_THAT(
        ModelSizes::Create(file, text, {}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("config.json")))
        << text;
  }
  EXPECT_THAT(
      ModelSizes::Create(file, std::string(kMaxModelConfigBytes + 1, ' '), {}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("more than 1048576")));
}

}  // namespace
}  // namespace dcp
