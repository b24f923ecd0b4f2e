// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/report_messages.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::dcp::testing::kDataLoss;

TEST(ReportMessages, ReportsAreCompleteAndBounded) {
  VerifyReport report;
  report.format = Format::kTorch;
  report.num_tensors = 1;
  report.num_items_checked = 2;
  report.findings.push_back(
      {.name = "w", .file = "f\xFF", .offset = 3, .problem = "torn"});
  v1::VerifyReport proto;
  VerifyReportToProto(report, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "num_tensors: 1 findings { name: \"w\" file: \"f\\357\\277\\275\" "
            "offset: 3 problem: \"torn\" } num_findings: 1 format: "
            "FORMAT_TORCH num_items_checked: 2");
  report.findings.assign(20'000, report.findings[0]);
  proto.Clear();
  VerifyReportToProto(report, proto);
  EXPECT_EQ(proto.findings_size(), 10'000);
  EXPECT_EQ(proto.num_findings(), 20'000u);
  for (VerifyFinding& finding : report.findings) {
    finding.problem = std::string(2000, 'x');
  }
  proto.Clear();
  VerifyReportToProto(report, proto);
  EXPECT_LT(proto.ByteSizeLong(), 4u << 20);
  EXPECT_GT(proto.findings_size(), 1000);
}

TEST(ReportMessages, DifferencesIncludeMagnitudes) {
  DiffReport report;
  report.num_tensors_equal = 4;
  DiffFinding& values = report.findings.emplace_back();
  values.kind = DiffFinding::Kind::kValues;
  values.name = "w";
  values.num_elements = 9;
  values.difference = {.num_different = 2,
                       .first_different = 5,
                       .max_abs = 0.5,
                       .max_rel = 0.25,
                       .max_ulp = 77};
  values.first_index = {1, 2};
  DiffFinding& shape = report.findings.emplace_back();
  shape.kind = DiffFinding::Kind::kShape;
  shape.name = "b";
  shape.in_a = "[1]";
  shape.in_b = "[2]";
  v1::DiffReport proto;
  DiffReportToProto(report, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "num_tensors_equal: 4 findings { kind: KIND_VALUES name: \"w\" "
            "num_elements: 9 num_different: 2 max_abs_difference: 0.5 "
            "first_different: 5 max_ulp: 77 first_index: 1 first_index: 2 "
            "max_rel_difference: 0.25 } findings { kind: KIND_SHAPE "
            "name: \"b\" in_a: \"[1]\" in_b: \"[2]\" } num_findings: 2");
}

TEST(ReportMessages, PlansAreCompleteAndBounded) {
  ConvertPlan plan;
  plan.from = Format::kDcp;
  plan.to = Format::kSafetensors;
  plan.files = {{"a", 1}, {"b", 2}};
  plan.num_tensors = 3;
  plan.bytes_to_read = 4;
  plan.bytes_to_write = 5;
  plan.memory_bytes = 6;
  plan.dropped = {"lr"};
  v1::ConvertResult proto;
  ConvertPlanToProto(plan, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "from: FORMAT_DCP to: FORMAT_SAFETENSORS files { name: \"a\" "
            "num_bytes: 1 } files { name: \"b\" num_bytes: 2 } num_tensors: 3 "
            "bytes_to_read: 4 bytes_to_write: 5 memory_bytes: 6 dropped: "
            "\"lr\" num_files: 2 num_dropped: 1");
  plan.files.assign(300'000, plan.files[0]);
  plan.dropped.assign(20'000, std::string(1000, 'x'));
  proto.Clear();
  ConvertPlanToProto(plan, proto);
  EXPECT_LT(proto.ByteSizeLong(), 7u << 20);
  EXPECT_EQ(proto.num_files(), 300'000u);
  EXPECT_EQ(proto.num_dropped(), 20'000u);
}

TEST(ReportMessages, ReportsComeBackComplete) {
  v1::VerifyReport verify;
  verify.set_format(v1::FORMAT_TORCH);
  verify.set_num_items_checked(4);
  verify.add_findings()->set_problem("torn");
  verify.set_num_findings(3);
  ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                       VerifyReportFromProto(verify));
  EXPECT_EQ(verified.format, Format::kTorch);
  EXPECT_EQ(verified.num_items_checked, 4);
  ASSERT_EQ(verified.findings.size(), 2);
  EXPECT_EQ(verified.findings[0].problem, "torn");
  EXPECT_THAT(verified.findings[1].problem, HasSubstr("2 more problems"));

  v1::DiffReport diff;
  diff.add_findings()->set_kind(v1::DiffFinding::KIND_VALUES);
  diff.mutable_findings(0)->set_max_ulp(9);
  diff.mutable_findings(0)->set_max_rel_difference(0.5);
  diff.mutable_findings(0)->add_first_index(3);
  diff.mutable_findings(0)->add_first_index(17);
  ASSERT_OK_AND_ASSIGN(const DiffReport differs, DiffReportFromProto(diff));
  EXPECT_EQ(differs.findings[0].kind, DiffFinding::Kind::kValues);
  EXPECT_EQ(differs.findings[0].difference.max_ulp, 9);
  EXPECT_EQ(differs.findings[0].difference.max_rel, 0.5);
  EXPECT_THAT(differs.findings[0].first_index, ElementsAre(3, 17));

  v1::ConvertResult result;
  result.set_from(v1::FORMAT_DCP);
  result.set_to(v1::FORMAT_SAFETENSORS);
  result.add_files()->set_name("f");
  result.add_dropped("lr");
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan, ConvertPlanFromProto(result));
  EXPECT_EQ(plan.to, Format::kSafetensors);
  EXPECT_EQ(plan.files[0].name, "f");
  EXPECT_THAT(plan.dropped, ElementsAre("lr"));
  EXPECT_FALSE(plan.map.has_value());
}

TEST(ReportMessages, MappingResultsComeBack) {
  ConvertPlan plan;
  plan.from = plan.to = Format::kDcp;
  plan.map.emplace();
  plan.map->name = "llama";
  plan.map->from = "hf";
  plan.map->to = "meta";
  plan.map->rules = {{.file = "llama.yaml",
                      .line = 7,
                      .text = "a -> b",
                      .num_instances = 1,
                      .num_sources = 2,
                      .num_destinations = 3,
                      .num_pieces = 4},
                     {.shapes = "[3, 2] -> [2, 3]",
                      .num_bytes = 24,
                      .rule_class = RuleClass::kStrided,
                      .read_ratio = 1.5},
                     {.rule_class = RuleClass::kArithmetic}};
  plan.map->digest = "00ff";
  plan.map->config = {{"head_dim", 64}};
  plan.dropped_config = {"quantization_config"};
  plan.not_copied = {"README.md", "2_Dense/"};
  plan.warnings = {"no optimizer"};
  plan.map->dropped = {"inv_freq"};
  plan.map->copied = {"head"};
  v1::ConvertResult proto;
  ConvertPlanToProto(plan, proto);
  ASSERT_OK_AND_ASSIGN(const ConvertPlan back, ConvertPlanFromProto(proto));
  ASSERT_TRUE(back.map.has_value());
  EXPECT_EQ(back.map->name, "llama");
  EXPECT_EQ(back.map->from, "hf");
  EXPECT_EQ(back.map->to, "meta");
  EXPECT_EQ(back.map->digest, "00ff");
  EXPECT_EQ(back.map->config, plan.map->config);
  EXPECT_EQ(back.dropped_config, plan.dropped_config);
  EXPECT_EQ(back.not_copied, plan.not_copied);
  EXPECT_EQ(back.warnings, plan.warnings);
  ASSERT_EQ(back.map->rules.size(), 3u);
  EXPECT_EQ(back.map->rules[1].shapes, "[3, 2] -> [2, 3]");
  EXPECT_EQ(back.map->rules[1].num_bytes, 24u);
  EXPECT_EQ(back.map->rules[1].rule_class, RuleClass::kStrided);
  EXPECT_EQ(back.map->rules[1].read_ratio, 1.5);
  EXPECT_EQ(back.map->rules[2].rule_class, RuleClass::kArithmetic);
  const PlannedRule& rule = back.map->rules[0];
  EXPECT_EQ(rule.file, "llama.yaml");
  EXPECT_EQ(rule.line, 7);
  EXPECT_EQ(rule.text, "a -> b");
  EXPECT_EQ(rule.num_instances, 1u);
  EXPECT_EQ(rule.num_sources, 2u);
  EXPECT_EQ(rule.num_destinations, 3u);
  EXPECT_EQ(rule.num_pieces, 4u);
  EXPECT_EQ(rule.rule_class, RuleClass::kBox);
  EXPECT_EQ(rule.read_ratio, std::nullopt);
  EXPECT_THAT(back.map->dropped, ElementsAre("inv_freq"));
  EXPECT_THAT(back.map->copied, ElementsAre("head"));
  plan.map->rules.assign(5000, plan.map->rules[0]);
  for (PlannedRule& each : plan.map->rules) each.text.assign(4096, 'x');
  plan.map->dropped.assign(20'000, std::string(1000, 'x'));
  proto.Clear();
  ConvertPlanToProto(plan, proto);
  EXPECT_LT(proto.ByteSizeLong(), 2u << 20);
}

TEST(ReportMessages, RefusesImpossibleReports) {
  EXPECT_THAT(VerifyReportFromProto({}), StatusIs(kDataLoss));
  EXPECT_THAT(ConvertPlanFromProto({}), StatusIs(kDataLoss));
  v1::DiffReport diff;
  diff.add_findings();
  EXPECT_THAT(DiffReportFromProto(diff), StatusIs(kDataLoss));
}

}  // namespace
}  // namespace dcp
