// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/json_output.h"

#include <limits>
#include <string>
#include <vector>

#include "dcp/base/error_side.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/error_detail.h"
#include "tests/tools/dcp_convert/sample_entries.h"

namespace dcp::tools {
namespace {

using Json = nlohmann::json;

// Also checks that the text is one line.
Json ParseJsonText(const std::string& text) {
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  return Json::parse(text);
}

DiffFinding Finding(DiffFinding::Kind kind, const char* name) {
  DiffFinding finding;
  finding.kind = kind;
  finding.name = name;
  return finding;
}

TEST(JsonOutput, Inspect) {
  const std::vector<CheckpointEntry> entries = SampleEntries();
  Inspection inspection = InspectEntries(entries, "");
  inspection.path = "run";
  inspection.properties = {{"version", "1.0.0"}};
  inspection.warnings = {"the option layout helps"};
  inspection.files = {{"a", 150}, {"b", std::nullopt}};
  const Json want = Json::parse(R"json({
    "verb": "inspect", "version": 1, "path": "run", "format": "dcp",
    "properties": {"version": "1.0.0"}, "warnings": ["--layout helps"],
    "num_tensors": 2, "num_objects": 2, "num_elements": 13, "num_bytes": 56,
    "dtypes": [{"dtype": "float32", "num_tensors": 1, "num_bytes": 48},
               {"dtype": "int64", "num_tensors": 1, "num_bytes": 8}],
    "files": [{"name": "a", "num_bytes": 150},
              {"name": "b", "num_bytes": null}],
    "tensors": [
      {"name": "w", "dtype": "float32", "shape": [4, 3], "num_bytes": 48,
       "num_chunks": 2, "layout": "2 x Shard(0)"},
      {"name": "step", "dtype": "int64", "shape": [], "num_bytes": 8,
       "num_chunks": 1, "layout": "whole"}],
    "objects_note": "",
    "object_limits": {"max_bytes": 67108864, "max_depth": 200},
    "objects": [{"name": "lr", "value": "0.5", "read": true,
                 "unreadable": null, "object": 0.5},
                {"name": "hidden", "value": null, "read": false,
                 "unreadable": null, "object": null}]})json");
  EXPECT_EQ(ParseJsonText(InspectJson(inspection, /*chunks=*/false)), want);

  const Json with_chunks =
      ParseJsonText(InspectJson(inspection, /*chunks=*/true));
  EXPECT_EQ(with_chunks["tensors"][0]["chunks"], Json::parse(R"([
    {"offsets": [0, 0], "sizes": [2, 3], "file": "a", "offset": 0,
     "length": 100},
    {"offsets": [2, 0], "sizes": [2, 3], "file": "b", "offset": 0,
     "length": 200}])"));
}

TEST(JsonOutput, SaysWhyAnObjectIsMissing) {
  std::vector<CheckpointEntry> entries = SampleEntries();
  for (CheckpointEntry& entry : entries) {
    auto* object = std::get_if<ObjectEntry>(&entry.value);
    if (object == nullptr || entry.fqn != "lr") continue;
    object->value = Value();
    object->unreadable = absl::UnimplementedError("of class my.Config");
  }
  const Json json =
      ParseJsonText(InspectJson(InspectEntries(entries, "lr"), false));
  EXPECT_EQ(json["objects"][0]["read"], false);
  EXPECT_EQ(json["objects"][0]["unreadable"],
            Json::parse(R"({"code": "UNIMPLEMENTED",
                            "message": "of class my.Config"})"));
}

TEST(JsonOutput, PrintsNamesThatAreNotUtf8) {
  std::vector<CheckpointEntry> entries = SampleEntries();
  entries[0].fqn = "w\xff";
  const Json json =
      ParseJsonText(InspectJson(InspectEntries(entries, "w*"), false));
  EXPECT_EQ(json["tensors"][0]["name"], "w\xef\xbf\xbd");
}

TEST(JsonOutput, Verify) {
  VerifyReport report;
  report.format = Format::kTorch;
  report.num_tensors = 2;
  report.num_objects = 1;
  report.num_chunks = 2;
  report.num_items = 4;
  report.num_items_checked = 3;
  report.num_crcs_checked = 3;
  report.num_digests_checked = 2;
  report.num_items_unchecked = 1;
  report.bytes_checked = 77;
  report.findings.push_back(
      {.name = "w", .file = "f", .offset = 64, .problem = "CRC"});
  EXPECT_EQ(ParseJsonText(VerifyJson("p", report, 0.5, nullptr)),
            Json::parse(R"({
    "verb": "verify", "version": 1, "path": "p", "format": "pt", "ok": false, "content_checked": true,
    "num_tensors": 2, "num_objects": 1, "num_chunks": 2,
    "num_items": 4, "num_items_checked": 3, "num_crcs_checked": 3,
    "num_digests_checked": 2, "num_items_unchecked": 1, "bytes_checked": 77, "seconds": 0.5,
    "warnings": [],
    "findings": [
      {"name": "w", "file": "f", "offset": 64, "problem": "CRC"}]})"));
  report.findings.clear();
  const ShareOutcome share{.share = {1, 3},
                           .plan_id = "id",
                           .num_pieces = 7,
                           .num_pieces_done = 2,
                           .is_complete = true};
  const Json shared = ParseJsonText(VerifyJson("p", report, 0.5, &share));
  EXPECT_EQ(shared["ok"], true);
  EXPECT_EQ(shared["share"], Json::parse(R"({
    "index": 1, "count": 3, "plan": "id", "pieces_total": 7, "pieces_done": 2,
    "complete": true})"));
  const WorkStatus status{.id = "id", .num_pieces = 1, .report = report};
  const Json workers = ParseJsonText(WorkersJson("d", status, false));
  EXPECT_EQ(workers["complete"], false);
  EXPECT_EQ(workers["report"]["num_crcs_checked"], 3);
  EXPECT_EQ(workers["report"]["ok"], true);
}

TEST(JsonOutput, Diff) {
  DiffReport report;
  report.num_tensors_equal = 5;
  report.num_objects_equal = 4;
  report.bytes_compared = 100;
  report.containers_skipped = "dcp";
  report.warnings = {"A: no optimizer"};
  DiffFinding shape = Finding(DiffFinding::Kind::kShape, "s");
  shape.in_a = "[2]";
  shape.in_b = "[3]";
  report.findings.push_back(shape);
  DiffFinding values = Finding(DiffFinding::Kind::kValues, "v");
  values.num_elements = 10;
  values.difference = {.num_different = 2,
                       .first_different = 3,
                       .max_abs = std::numeric_limits<double>::infinity(),
                       .max_rel = 0.5,
                       .max_ulp = 9};
  values.first_index = {0, 3};
  report.findings.push_back(values);
  EXPECT_EQ(ParseJsonText(DiffJson("a", "b", {report, 1}, {})), Json::parse(R"({
    "verb": "diff", "version": 1, "a": "a", "b": "b", "equal": false,
    "tolerance": null,
    "num_tensors_equal": 5, "num_objects_equal": 4, "bytes_compared": 100,
    "containers_skipped": "dcp", "warnings": ["A: no optimizer"],
    "seconds": 1.0,
    "findings": [
      {"name": "s", "kind": "shape", "in_a": "[2]", "in_b": "[3]"},
      {"name": "v", "kind": "values", "in_a": "", "in_b": "",
       "num_elements": 10, "num_different": 2, "first_different": 3,
       "first_index": [0, 3], "max_abs": "inf", "max_rel": 0.5,
       "max_ulp": 9}]})"));
  EXPECT_EQ(ParseJsonText(DiffJson("a", "b", {report, 1},
                                   Tolerance{.atol = 0.5}))["tolerance"],
            Json::parse(R"({"atol": 0.5, "rtol": 0.0, "equal_nan": true})"));
}

TEST(JsonOutput, DiffNamesEveryKind) {
  DiffReport report;
  using Kind = DiffFinding::Kind;
  for (Kind kind : {Kind::kOnlyInA, Kind::kOnlyInB, Kind::kKind, Kind::kShape,
                    Kind::kDType, Kind::kValues, Kind::kObject}) {
    report.findings.push_back(Finding(kind, "x"));
  }
  std::vector<std::string> names;
  const Json json = ParseJsonText(DiffJson("a", "b", {report, 0}, {}));
  for (const Json& finding : json["findings"]) {
    names.push_back(finding["kind"]);
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("only_in_a", "only_in_b", "kind", "shape",
                                     "dtype", "values", "object"));
}

TEST(JsonOutput, Convert) {
  ConvertPlan plan;
  plan.from = Format::kDcp;
  plan.to = Format::kSafetensors;
  plan.files = {{.name = "m.safetensors", .bytes = 90}};
  plan.num_tensors = 3;
  plan.num_objects = 1;
  plan.bytes_to_read = 80;
  plan.bytes_to_write = 90;
  plan.memory_bytes = 1000;
  plan.index_bytes = 70;
  plan.num_lanes = 2;
  plan.dropped = {"lr"};
  plan.dropped_metadata = {"license"};
  plan.code_left_out = {"model.py"};
  plan.not_copied = {"README.md"};
  plan.warnings = {"the option layout says what is inside"};
  Json want = Json::parse(R"({
    "verb": "reshard", "version": 1, "src": "s", "dst": "d", "from": "dcp",
    "to": "safetensors", "num_tensors": 3, "num_objects": 1,
    "dropped": ["lr"], "dropped_metadata": ["license"],
    "code_left_out": ["model.py"], "dropped_config": [],
    "not_copied": ["README.md"],
    "warnings": ["--layout says what is inside"],
    "files": [{"name": "m.safetensors", "num_bytes": 90}],
    "bytes_to_read": 80, "bytes_to_write": 90, "memory_bytes": 1000,
    "index_bytes": 70,
    "num_lanes": 2, "done": false})");
  EXPECT_EQ(ParseJsonText(ConvertJson("reshard", "s", "d", plan, nullptr)),
            want);
  const ConvertOutcome outcome{.seconds = 2,
                               .bytes_read = 81,
                               .bytes_written = 91,
                               .peak_memory_bytes = 5};
  want["done"] = true;
  want["bytes_read"] = 81;
  want["bytes_written"] = 91;
  want["seconds"] = 2.0;
  want["peak_memory_bytes"] = 5;
  plan.check = {.checked = true,
                .num_crcs_checked = 6,
                .num_digests_checked = 7,
                .bytes_checked = 70,
                .num_items_unchecked = 1,
                .bytes_unchecked = 10};
  want["checked"] = true;
  want["num_crcs_checked"] = 6;
  want["num_digests_checked"] = 7;
  want["bytes_checked"] = 70;
  want["num_items_unchecked"] = 1;
  want["bytes_unchecked"] = 10;
  plan.cast_losses = {{.name = "w", .dtype = DType::kFloat16, .num_beyond = 2}};
  want["cast_losses"] =
      Json::parse(R"([{"name": "w", "dtype": "float16", "num_beyond": 2}])");
  EXPECT_EQ(ParseJsonText(ConvertJson("reshard", "s", "d", plan, &outcome)),
            want);
}

TEST(JsonOutput, Jobs) {
  const JobRow row{.name = "operations/7",
                   .kind = "RESHARD",
                   .state = "FAILED",
                   .src = "/s",
                   .dst = "/d",
                   .done_bytes = 1,
                   .total_bytes = 2,
                   .error = "torn"};
  EXPECT_EQ(ParseJsonText(JobsJson({row})), Json::parse(R"({
    "verb": "jobs", "version": 1,
    "jobs": [{"name": "operations/7", "kind": "RESHARD", "state": "FAILED",
              "source": "/s", "destination": "/d", "bytes_done": 1,
              "bytes_total": 2, "error": "torn", "result": null}]})"));
  JobRow done;
  done.converted.emplace();
  done.converted->to = Format::kTorch;
  done.converted->dropped = {"lr"};
  done.converted->warnings = {"no optimizer"};
  const Json result = ParseJsonText(JobsJson({done}))["jobs"][0]["result"];
  EXPECT_EQ(result["to"], "pt");
  EXPECT_EQ(result["dropped"], Json({"lr"}));
  EXPECT_EQ(result["warnings"], Json({"no optimizer"}));
  EXPECT_EQ(result["checked"], false);
  JobRow verified;
  verified.verified.emplace();
  EXPECT_EQ(ParseJsonText(JobsJson({verified}))["jobs"][0]["result"]["ok"],
            true);
}

TEST(JsonOutput, Error) {
  const absl::Status status =
      WithSide(absl::NotFoundError("gone"), ErrorSide::kSource);
  EXPECT_EQ(ParseJsonText(ErrorJson("convert", status, 3)), Json::parse(R"({
    "verb": "convert", "version": 1,
    "error": {"code": "NOT_FOUND", "side": "source", "message": "gone"},
    "exit_code": 3})"));
}

TEST(JsonOutput, DaemonErrorsHaveAReason) {
  EXPECT_EQ(ParseJsonText(
                ErrorJson("convert", InvalidField("mesh", " is missing"), 2)),
            Json::parse(R"({
    "verb": "convert", "version": 1,
    "error": {"code": "INVALID_ARGUMENT", "side": "",
              "message": "mesh is missing", "reason": "INVALID_FIELD",
              "field": "mesh"},
    "exit_code": 2})"));
}

}  // namespace
}  // namespace dcp::tools
