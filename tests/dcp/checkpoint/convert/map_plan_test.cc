// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/map_plan.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MappedPair;
using ::dcp::testing::SimStorage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(MapPlan, APlanSaysWhatEachRuleDoes) {
  SimStorage fs;
  MappedPair().Save(fs, "/src");
  ConvertOptions options;
  options.open.map = MappedPair::Map();
  options.to = Format::kSafetensors;
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       PlanConvert(fs, "/src", "/out", std::move(options)));
  ASSERT_TRUE(plan.map.has_value());
  EXPECT_EQ(plan.map->from, "theirs");
  EXPECT_EQ(plan.map->to, "ours");
  EXPECT_THAT(plan.map->digest, SizeIs(16));
  EXPECT_THAT(plan.map->config, IsEmpty());
  std::vector<std::string> shapes;
  std::vector<RuleClass> classes;
  std::vector<uint64_t> num_bytes;
  for (const PlannedRule& rule : plan.map->rules) {
    shapes.push_back(rule.shapes);
    classes.push_back(rule.rule_class);
    num_bytes.push_back(rule.num_bytes);
    ASSERT_TRUE(rule.read_ratio.has_value());
    EXPECT_DOUBLE_EQ(*rule.read_ratio, 1) << rule.text;
  }
  EXPECT_THAT(shapes, ElementsAre("[7, 5], [4, 5] -> [11, 5]",
                                  "[30, 9] -> [9, 30]", "[40, 3]"));
  EXPECT_THAT(classes, ElementsAre(RuleClass::kBox, RuleClass::kStrided,
                                   RuleClass::kBox));
  EXPECT_THAT(num_bytes, ElementsAre(220, 1080, 480));
  // A conversion that did not plan its reads reports no ratios.
  ConvertOptions really;
  really.open.map = MappedPair::Map();
  really.to = Format::kSafetensors;
  ASSERT_OK_AND_ASSIGN(
      const ConvertPlan done,
      ConvertCheckpoint(fs, "/src", "/out", std::move(really)));
  EXPECT_EQ(done.map->rules[0].read_ratio, std::nullopt);
}

TEST(MapPlan, EachByteOfASourceCountsAsOftenAsItIsRead) {
  SimStorage fs;
  MappedPair().Save(fs, "/src");
  const std::unique_ptr<Checkpoint> checkpoint = MappedPair::Open(fs, "/src");
  std::vector<uint32_t> all(checkpoint->stored_entries().size());
  std::iota(all.begin(), all.end(), 0);
  ASSERT_OK(checkpoint->LocateStored(all, {}));
  SourceFiles& files = checkpoint->files();
  ASSERT_OK_AND_ASSIGN(RuleReads reads,
                       RuleReads::Make(*checkpoint->mapped(), files));
  PlannedMap map = PlanMap(*MappedPair::Map(), checkpoint->mapped()->report);
  const auto ratios = [&] {
    reads.SetRatios(map);
    std::vector<double> values;
    for (const PlannedRule& rule : map.rules) {
      values.push_back(rule.read_ratio.value_or(-1));
    }
    return values;
  };
  EXPECT_THAT(ratios(), ElementsAre(-1, -1, -1));
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const File file, files.Get(i));
    for (uint64_t at = 0; at < file.size; ++at) reads.Add({file, at, 1});
  }
  EXPECT_THAT(ratios(), ElementsAre(1, 1, 1));
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const File file, files.Get(i));
    reads.Add({file, 0, file.size});
  }
  EXPECT_THAT(ratios(), ElementsAre(2, 2, 2));
  // Not a file of the sources.
  reads.Add({File{.handle = 12345, .size = 10}, 0, 10});
  EXPECT_THAT(ratios(), ElementsAre(2, 2, 2));
}

}  // namespace
}  // namespace dcp
