// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/json_output.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "proto/error_detail.h"
#include "tools/dcp_convert/options/flag_names.h"
#include "tools/dcp_convert/output/json_object.h"
#include "tools/dcp_convert/output/map_json.h"
#include "tools/dcp_convert/output/object_json.h"
#include "tools/terminal/exit_code.h"

namespace dcp::tools {
namespace {

// Longer value texts are cut, as for people; "object" has the whole value.
constexpr size_t kMaxJsonValueBytes = 1000;

Json DimsJson(const Dims& dims) {
  Json json = Json::array();
  for (int64_t size : dims) json.push_back(size);
  return json;
}

Json ChunksJson(const Inspection& inspection, const TensorEntry& tensor) {
  Json json = Json::array();
  for (size_t i = 0; i < tensor.boxes.size(); ++i) {
    const StorageInfo& item = tensor.locations[i].item;
    json.push_back(Json{{"offsets", DimsJson(tensor.boxes[i].offsets)},
                        {"sizes", DimsJson(tensor.boxes[i].sizes)},
                        {"file", inspection.files[item.file].name},
                        {"offset", item.offset},
                        {"length", item.length}});
  }
  return json;
}

Json TensorJson(const Inspection& inspection, const CheckpointEntry& entry,
                bool chunks) {
  const TensorEntry& tensor = *entry.tensor();
  Json json{{"name", entry.fqn},
            {"dtype", JsonText(TorchName(tensor.dtype))},
            {"shape", DimsJson(tensor.shape)},
            {"num_bytes", tensor.num_bytes()},
            {"num_chunks", tensor.boxes.size()},
            {"layout", LayoutText(inspection, tensor)}};
  if (chunks) json["chunks"] = ChunksJson(inspection, tensor);
  return json;
}

// One object in the list: the fields, then "object". nlohmann's type cannot
// hold "object", because integers there have any number of digits.
std::string ObjectLine(const Inspection& inspection, size_t index,
                       ObjectJsonLimits& left) {
  Json json{{"name", inspection.objects[index]->fqn}, {"value", nullptr}};
  const std::optional<std::string> text =
      ObjectText(inspection, index, kMaxJsonValueBytes);
  if (text.has_value()) json["value"] = *text;
  // A server sends only the text.
  if (inspection.object_texts.has_value()) return DumpBareJson(json);
  const ObjectEntry& object = *inspection.objects[index]->object();
  json["read"] = object.located && object.unreadable.ok();
  json["unreadable"] = nullptr;
  if (!object.unreadable.ok()) {
    json["unreadable"] =
        Json{{"code", absl::StatusCodeToString(object.unreadable.code())},
             {"message", JsonText(object.unreadable.message())}};
  }
  const std::string typed = ObjectJson(object, left);
  left.max_bytes -= std::min(left.max_bytes, typed.size());
  std::string line = DumpBareJson(json);
  line.pop_back();  // the brace
  return absl::StrCat(line, ",\"object\":", typed, "}");
}

// The list as text. All objects in it share one limit.
std::string ObjectsText(const Inspection& inspection) {
  ObjectJsonLimits left;
  std::vector<std::string> objects;
  for (size_t i = 0; i < inspection.objects.size(); ++i) {
    objects.push_back(ObjectLine(inspection, i, left));
  }
  return absl::StrCat("[", absl::StrJoin(objects, ","), "]");
}

// JSON has no infinity and no NaN: they become the texts "inf" and "nan".
Json NumberJson(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  return number;
}

absl::string_view KindName(DiffFinding::Kind kind) {
  switch (kind) {
    case DiffFinding::Kind::kOnlyInA:
      return "only_in_a";
    case DiffFinding::Kind::kOnlyInB:
      return "only_in_b";
    case DiffFinding::Kind::kKind:
      return "kind";
    case DiffFinding::Kind::kShape:
      return "shape";
    case DiffFinding::Kind::kDType:
      return "dtype";
    case DiffFinding::Kind::kValues:
      return "values";
    case DiffFinding::Kind::kObject:
      return "object";
    case DiffFinding::Kind::kContainer:
      return "container";
  }
  return "";
}

Json DiffFindingJson(const DiffFinding& finding) {
  Json json{{"name", finding.name},
            {"kind", JsonText(KindName(finding.kind))},
            {"in_a", finding.in_a},
            {"in_b", finding.in_b}};
  if (finding.kind == DiffFinding::Kind::kValues) {
    json["num_elements"] = finding.num_elements;
    json["num_different"] = finding.difference.num_different;
    json["first_different"] = finding.difference.first_different;
    json["first_index"] = DimsJson(finding.first_index);
    json["max_abs"] = NumberJson(finding.difference.max_abs);
    json["max_rel"] = NumberJson(finding.difference.max_rel);
    json["max_ulp"] = finding.difference.max_ulp;
  }
  return json;
}

// The destination's present or future contents, and the values left out.
void AddContents(const ConvertPlan& plan, Json& json) {
  json["from"] = JsonText(FormatName(plan.from));
  json["to"] = JsonText(FormatName(plan.to));
  json["num_tensors"] = plan.num_tensors;
  json["num_objects"] = plan.num_objects;
  json["warnings"] = WarningsJson(plan.warnings);
  json["dropped"] = plan.dropped;
  json["dropped_metadata"] = plan.dropped_metadata;
  json["code_left_out"] = plan.code_left_out;
  json["not_copied"] = plan.not_copied;
  json["dropped_config"] = plan.dropped_config;
}

// How much was checked in the source, and the casts that lost more than
// precision.
void AddDoubts(const ConvertPlan& plan, Json& json) {
  json["checked"] = plan.check.checked;
  json["num_crcs_checked"] = plan.check.num_crcs_checked;
  json["num_digests_checked"] = plan.check.num_digests_checked;
  json["bytes_checked"] = plan.check.bytes_checked;
  json["num_items_unchecked"] = plan.check.num_items_unchecked;
  json["bytes_unchecked"] = plan.check.bytes_unchecked;
  Json& losses = json["cast_losses"] = Json::array();
  for (const CastLoss& loss : plan.cast_losses) {
    losses.push_back(Json{{"name", loss.name},
                          {"dtype", JsonText(TorchName(loss.dtype))},
                          {"num_beyond", loss.num_beyond}});
  }
}

}  // namespace

std::string InspectJson(const Inspection& inspection, bool chunks) {
  Json json = JsonHeader("inspect");
  json["path"] = inspection.path;
  json["format"] = JsonText(FormatName(inspection.format));
  Json properties = Json::object();
  for (const auto& [label, value] : inspection.properties) {
    properties[label] = IsProblem(label) ? WithFlags(value) : value;
  }
  json["properties"] = std::move(properties);
  json["warnings"] = WarningsJson(inspection.warnings);
  json["num_tensors"] = inspection.tensors.size();
  json["num_objects"] = inspection.objects.size();
  json["num_elements"] = inspection.num_elements;
  json["num_bytes"] = inspection.num_bytes;
  Json& dtypes = json["dtypes"] = Json::array();
  for (const Inspection::DTypeTotal& total : inspection.dtypes) {
    dtypes.push_back(Json{{"dtype", JsonText(TorchName(total.dtype))},
                          {"num_tensors", total.num_tensors},
                          {"num_bytes", total.num_bytes}});
  }
  Json& files = json["files"] = Json::array();
  for (const Inspection::DataFile& file : inspection.files) {
    Json size = nullptr;
    if (file.num_bytes.has_value()) size = *file.num_bytes;
    files.push_back(Json{{"name", file.name}, {"num_bytes", size}});
  }
  Json& tensors = json["tensors"] = Json::array();
  for (const CheckpointEntry* entry : inspection.tensors) {
    tensors.push_back(TensorJson(inspection, *entry, chunks));
  }
  json["objects_note"] = inspection.objects_note;
  const ObjectJsonLimits limits;
  json["object_limits"] =
      Json{{"max_bytes", limits.max_bytes}, {"max_depth", limits.max_depth}};
  std::string text = DumpBareJson(json);
  text.pop_back();  // the brace
  return absl::StrCat(text, ",\"objects\":", ObjectsText(inspection), "}\n");
}

namespace {

void AddReport(const VerifyReport& report, Json& json) {
  json["format"] = JsonText(FormatName(report.format));
  json["ok"] = report.findings.empty();
  json["content_checked"] = !report.checked_no_content();
  json["num_tensors"] = report.num_tensors;
  json["num_objects"] = report.num_objects;
  json["num_chunks"] = report.num_chunks;
  json["num_items"] = report.num_items;
  json["num_items_checked"] = report.num_items_checked;
  json["num_crcs_checked"] = report.num_crcs_checked;
  json["num_digests_checked"] = report.num_digests_checked;
  json["num_items_unchecked"] = report.num_items_unchecked;
  json["bytes_checked"] = report.bytes_checked;
  json["warnings"] = WarningsJson(report.warnings);
  Json& findings = json["findings"] = Json::array();
  for (const VerifyFinding& finding : report.findings) {
    findings.push_back(Json{{"name", finding.name},
                            {"file", finding.file},
                            {"offset", finding.offset},
                            {"problem", WithFlags(finding.problem)}});
  }
}

Json ShareJson(const ShareOutcome& share) {
  return Json{{"index", share.share.index},
              {"count", share.share.count},
              {"plan", share.plan_id},
              {"pieces_total", share.num_pieces},
              {"pieces_done", share.num_pieces_done},
              {"complete", share.is_complete}};
}

}  // namespace

std::string VerifyJson(absl::string_view path, const VerifyReport& report,
                       double seconds, const ShareOutcome* share) {
  Json json = JsonHeader("verify");
  json["path"] = JsonText(path);
  AddReport(report, json);
  json["seconds"] = seconds;
  if (share != nullptr) json["share"] = ShareJson(*share);
  return DumpJson(json);
}

namespace {

void AddDiff(const DiffReport& report, double seconds, Json& json) {
  json["equal"] = report.findings.empty();
  json["num_tensors_equal"] = report.num_tensors_equal;
  json["num_objects_equal"] = report.num_objects_equal;
  json["bytes_compared"] = report.bytes_compared;
  json["containers_skipped"] = report.containers_skipped;
  json["warnings"] = WarningsJson(report.warnings);
  json["seconds"] = seconds;
  Json& findings = json["findings"] = Json::array();
  for (const DiffFinding& finding : report.findings) {
    findings.push_back(DiffFindingJson(finding));
  }
}

}  // namespace

std::string DiffJson(absl::string_view a, absl::string_view b,
                     const Comparison& comparison,
                     const std::optional<Tolerance>& tolerance) {
  Json json = JsonHeader("diff");
  json["a"] = JsonText(a);
  json["b"] = JsonText(b);
  json["tolerance"] = nullptr;
  if (tolerance.has_value()) {
    json["tolerance"] = Json{{"atol", tolerance->atol},
                             {"rtol", tolerance->rtol},
                             {"equal_nan", tolerance->equal_nan}};
  }
  AddDiff(comparison.report, comparison.seconds, json);
  return DumpJson(json);
}

std::string ConvertJson(absl::string_view verb, absl::string_view src,
                        absl::string_view dst, const ConvertPlan& plan,
                        const ConvertOutcome* outcome) {
  Json json = JsonHeader(verb);
  json["src"] = JsonText(src);
  json["dst"] = JsonText(dst);
  AddContents(plan, json);
  if (plan.map.has_value()) json["map"] = PlannedMapJson(*plan.map);
  Json& files = json["files"] = Json::array();
  for (const ConvertPlan::OutputFile& file : plan.files) {
    files.push_back(Json{{"name", file.name}, {"num_bytes", file.bytes}});
  }
  json["bytes_to_read"] = plan.bytes_to_read;
  json["bytes_to_write"] = plan.bytes_to_write;
  json["memory_bytes"] = plan.memory_bytes;
  // A server does not report it.
  if (plan.index_bytes > 0) json["index_bytes"] = plan.index_bytes;
  json["num_lanes"] = plan.num_lanes;
  json["done"] = outcome != nullptr;
  if (outcome != nullptr) {
    json["bytes_read"] = outcome->bytes_read;
    json["bytes_written"] = outcome->bytes_written;
    json["seconds"] = outcome->seconds;
    json["peak_memory_bytes"] = outcome->peak_memory_bytes;
    AddDoubts(plan, json);
    if (outcome->comparison.has_value()) {
      AddDiff(outcome->comparison->report, outcome->comparison->seconds,
              json["comparison"]);
    }
    if (outcome->share.has_value()) {
      json["share"] = ShareJson(*outcome->share);
      json["share"]["committed"] = outcome->share->has_committed;
    }
  }
  return DumpJson(json);
}

std::string WorkersJson(absl::string_view dst,
                        const std::optional<WorkStatus>& status,
                        bool complete) {
  Json json = JsonHeader("workers");
  json["dst"] = JsonText(dst);
  json["complete"] = complete;
  if (!status.has_value()) return DumpJson(json);
  json["plan"] = status->id;
  json["pieces_total"] = status->num_pieces;
  json["bytes_total"] = status->num_bytes;
  if (status->report.has_value()) AddReport(*status->report, json["report"]);
  Json& done = json["done"] = Json::array();
  for (const WorkStatus::Done& piece : status->done) {
    done.push_back(
        Json{{"piece", piece.piece},
             {"num_bytes", piece.bytes},
             {"seconds", static_cast<double>(piece.milliseconds) / 1000},
             {"host", JsonText(piece.host)}});
  }
  return DumpJson(json);
}

std::string LitterJson(absl::string_view path, const Litter& litter,
                       bool removed) {
  Json json = JsonHeader("clean");
  json["path"] = JsonText(path);
  json["removed"] = removed;
  Json& uploads = json["uploads"] = Json::array();
  for (const HiddenFile& upload : litter.uploads) {
    uploads.push_back(Json{{"path", JsonText(upload.path)},
                           {"id", JsonText(upload.id)},
                           {"begun_ns", upload.begun_ns}});
  }
  Json& files = json["files"] = Json::array();
  for (const StoredFile& file : litter.files) {
    files.push_back(Json{{"path", JsonText(file.path)},
                         {"num_bytes", file.size},
                         {"modified_ns", file.modified_ns}});
  }
  Json& unclear = json["left_alone"] = Json::array();
  for (const std::string& folder : litter.unclear) {
    unclear.push_back(JsonText(folder));
  }
  return DumpJson(json);
}

std::string JobsJson(absl::Span<const JobRow> jobs) {
  Json json = JsonHeader("jobs");
  Json& list = json["jobs"] = Json::array();
  for (const JobRow& job : jobs) {
    list.push_back(Json{{"name", job.name},
                        {"kind", job.kind},
                        {"state", job.state},
                        {"source", job.src},
                        {"destination", job.dst},
                        {"bytes_done", job.done_bytes},
                        {"bytes_total", job.total_bytes},
                        {"error", job.error}});
    Json& result = list.back()["result"] = nullptr;
    if (job.converted.has_value()) {
      result = Json::object();
      AddContents(*job.converted, result);
      AddDoubts(*job.converted, result);
    }
    if (job.verified.has_value()) {
      result = Json::object();
      AddReport(*job.verified, result);
    }
  }
  return DumpJson(json);
}

std::string ErrorJson(absl::string_view verb, const absl::Status& status,
                      int exit_code) {
  Json json = JsonHeader(verb);
  Json& error = json["error"] =
      Json{{"code", absl::StatusCodeToString(status.code())},
           {"side", JsonText(SideName(status))},
           {"message", JsonText(WithFlags(status))}};
  const std::string reason = ErrorReasonName(status);
  if (!reason.empty()) error["reason"] = reason;
  const std::string field = BlamedField(status);
  if (!field.empty()) error["field"] = field;
  json["exit_code"] = exit_code;
  return DumpJson(json);
}

}  // namespace dcp::tools
