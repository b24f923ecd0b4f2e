// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/report_messages.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/mapping/equations/mapped_tensors.h"
#include "dcp/tensor/dtype.h"
#include "google/protobuf/repeated_field.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/field_checks.h"
#include "proto/utf8.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using messages::Text;

// Findings in one report, as documented in the API.
constexpr size_t kMaxFindings = 10'000;
// Bytes of a list in one message: receivers accept 4 MiB by default.
constexpr size_t kMaxListBytes = size_t{3} << 20;

// The number of losses that the API documents.
constexpr size_t kMaxWarnings = 100;

// Rules, or names, in a report about a mapping: more than people read.
constexpr size_t kMaxMapLines = 1000;

// Converts `values` with `convert` into `list`, up to a message's limits.
template <typename Values, typename List, typename Convert>
void ListToProto(const Values& values, List& list, Convert convert) {
  size_t num_bytes = 0;
  for (const auto& value : values) {
    if (static_cast<size_t>(list.size()) == kMaxFindings) return;
    convert(value, *list.Add());
    num_bytes += list[list.size() - 1].ByteSizeLong();
    if (num_bytes <= kMaxListBytes) continue;
    list.RemoveLast();
    return;
  }
}

void DiffFindingToProto(const DiffFinding& finding, v1::DiffFinding& made) {
  made.set_kind(DiffKindToProto(finding.kind));
  made.set_name(Text(finding.name));
  made.set_in_a(Text(finding.in_a));
  made.set_in_b(Text(finding.in_b));
  if (finding.kind != DiffFinding::Kind::kValues) return;
  made.set_num_elements(finding.num_elements);
  made.set_num_different(finding.difference.num_different);
  made.set_max_abs_difference(finding.difference.max_abs);
  made.set_first_different(finding.difference.first_different);
  made.set_max_ulp(finding.difference.max_ulp);
  for (const int64_t index : finding.first_index) made.add_first_index(index);
  made.set_max_rel_difference(finding.difference.max_rel);
}

absl::StatusOr<DiffFinding::Kind> KnownKind(v1::DiffFinding::Kind kind) {
  const std::optional<DiffFinding::Kind> known = DiffKindFromProto(kind);
  if (known.has_value()) return *known;
  return absl::DataLossError(
      absl::StrCat("the server reports the kind of difference ", kind,
                   ", which this client does not know"));
}

// The first names, up to `limit`.
void NamesToProto(absl::Span<const std::string> names, size_t limit,
                  google::protobuf::RepeatedPtrField<std::string>& list) {
  for (const std::string& name : names.first(std::min(names.size(), limit))) {
    list.Add(ToUtf8(
        absl::string_view(name).substr(0, kMaxListBytes / kMaxFindings)));
  }
}

v1::ConvertResult::MapResult::Rule::Class ClassToProto(RuleClass rule_class) {
  switch (rule_class) {
    case RuleClass::kBox:
      return v1::ConvertResult::MapResult::Rule::BOX;
    case RuleClass::kStrided:
      return v1::ConvertResult::MapResult::Rule::STRIDED;
    case RuleClass::kArithmetic:
      return v1::ConvertResult::MapResult::Rule::ARITHMETIC;
  }
  return v1::ConvertResult::MapResult::Rule::CLASS_UNSPECIFIED;
}

// An older server does not send it.
RuleClass ClassFromProto(v1::ConvertResult::MapResult::Rule::Class rule_class) {
  switch (rule_class) {
    case v1::ConvertResult::MapResult::Rule::STRIDED:
      return RuleClass::kStrided;
    case v1::ConvertResult::MapResult::Rule::ARITHMETIC:
      return RuleClass::kArithmetic;
    default:
      return RuleClass::kBox;
  }
}

void PlannedMapToProto(const PlannedMap& map,
                       v1::ConvertResult::MapResult& proto) {
  proto.set_name(Text(map.name));
  proto.set_from_side(Text(map.from));
  proto.set_to_side(Text(map.to));
  const size_t num_rules = std::min(map.rules.size(), kMaxMapLines);
  for (size_t i = 0; i < num_rules; ++i) {
    const PlannedRule& rule = map.rules[i];
    v1::ConvertResult::MapResult::Rule& made = *proto.add_rules();
    made.set_file(Text(rule.file));
    made.set_line(rule.line);
    made.set_text(Text(rule.text));
    made.set_num_instances(rule.num_instances);
    made.set_num_sources(rule.num_sources);
    made.set_num_destinations(rule.num_destinations);
    made.set_num_pieces(rule.num_pieces);
    made.set_shapes(Text(rule.shapes));
    made.set_num_bytes(rule.num_bytes);
    made.set_class_(ClassToProto(rule.rule_class));
    if (rule.read_ratio.has_value()) made.set_read_ratio(*rule.read_ratio);
  }
  proto.set_digest(map.digest);
  for (const auto& [key, number] : map.config) {
    if (static_cast<size_t>(proto.config().size()) == kMaxMapLines) break;
    (*proto.mutable_config())[Text(key)] = number;
  }
  NamesToProto(map.missing, kMaxMapLines, *proto.mutable_missing());
  NamesToProto(map.dropped, kMaxMapLines, *proto.mutable_dropped());
  NamesToProto(map.copied, kMaxMapLines, *proto.mutable_copied());
}

PlannedMap PlannedMapFromProto(const v1::ConvertResult::MapResult& proto) {
  PlannedMap map;
  map.name = proto.name();
  map.from = proto.from_side();
  map.to = proto.to_side();
  map.digest = proto.digest();
  map.config.insert(proto.config().begin(), proto.config().end());
  for (const v1::ConvertResult::MapResult::Rule& rule : proto.rules()) {
    PlannedRule& made = map.rules.emplace_back(
        PlannedRule{.file = rule.file(),
                    .line = rule.line(),
                    .text = rule.text(),
                    .shapes = rule.shapes(),
                    .num_instances = rule.num_instances(),
                    .num_sources = rule.num_sources(),
                    .num_destinations = rule.num_destinations(),
                    .num_pieces = rule.num_pieces(),
                    .num_bytes = rule.num_bytes(),
                    .rule_class = ClassFromProto(rule.class_())});
    if (rule.has_read_ratio()) made.read_ratio = rule.read_ratio();
  }
  map.missing.assign(proto.missing().begin(), proto.missing().end());
  map.dropped.assign(proto.dropped().begin(), proto.dropped().end());
  map.copied.assign(proto.copied().begin(), proto.copied().end());
  return map;
}

}  // namespace

void WarningsToProto(absl::Span<const std::string> warnings,
                     google::protobuf::RepeatedPtrField<std::string>& list) {
  NamesToProto(warnings, kMaxWarnings, list);
}

absl::StatusOr<Format> AnsweredFormatFromProto(v1::Format format) {
  const std::optional<Format> known = FormatFromProto(format);
  if (known.has_value()) return *known;
  return absl::DataLossError(absl::StrCat("the server reports the format ",
                                          format,
                                          ", which this client does not know"));
}

void VerifyReportToProto(const VerifyReport& report, v1::VerifyReport& proto) {
  proto.set_format(FormatToProto(report.format));
  proto.set_num_tensors(report.num_tensors);
  proto.set_num_objects(report.num_objects);
  proto.set_num_chunks(report.num_chunks);
  proto.set_num_items(report.num_items);
  proto.set_num_items_checked(report.num_items_checked);
  proto.set_num_crcs_checked(report.num_crcs_checked);
  proto.set_num_digests_checked(report.num_digests_checked);
  proto.set_num_items_unchecked(report.num_items_unchecked);
  proto.set_bytes_checked(report.bytes_checked);
  WarningsToProto(report.warnings, *proto.mutable_warnings());
  proto.set_num_findings(report.findings.size());
  ListToProto(report.findings, *proto.mutable_findings(),
              [](const VerifyFinding& finding, v1::VerifyFinding& made) {
                made.set_name(Text(finding.name));
                made.set_file(Text(finding.file));
                made.set_offset(finding.offset);
                made.set_problem(Text(finding.problem));
              });
}

absl::StatusOr<VerifyReport> VerifyReportFromProto(
    const v1::VerifyReport& proto) {
  VerifyReport report;
  DCP_ASSIGN_OR_RETURN(report.format, AnsweredFormatFromProto(proto.format()));
  report.num_tensors = proto.num_tensors();
  report.num_objects = proto.num_objects();
  report.num_chunks = proto.num_chunks();
  report.num_items = proto.num_items();
  report.num_items_checked = proto.num_items_checked();
  report.num_crcs_checked = proto.num_crcs_checked();
  report.num_digests_checked = proto.num_digests_checked();
  report.num_items_unchecked = proto.num_items_unchecked();
  report.bytes_checked = proto.bytes_checked();
  report.warnings.assign(proto.warnings().begin(), proto.warnings().end());
  for (const v1::VerifyFinding& finding : proto.findings()) {
    report.findings.push_back({.name = finding.name(),
                               .file = finding.file(),
                               .offset = finding.offset(),
                               .problem = finding.problem()});
  }
  if (proto.num_findings() > report.findings.size()) {
    report.findings.push_back(
        {.name = "",
         .file = "",
         .offset = 0,
         .problem =
             absl::StrCat(proto.num_findings() - report.findings.size(),
                          " more problems, which the server does not list")});
  }
  return report;
}

void DiffReportToProto(const DiffReport& report, v1::DiffReport& proto) {
  proto.set_num_tensors_equal(report.num_tensors_equal);
  proto.set_num_objects_equal(report.num_objects_equal);
  proto.set_bytes_compared(report.bytes_compared);
  proto.set_num_findings(report.findings.size());
  proto.set_containers_skipped(report.containers_skipped);
  WarningsToProto(report.warnings, *proto.mutable_warnings());
  ListToProto(report.findings, *proto.mutable_findings(), DiffFindingToProto);
}

absl::StatusOr<DiffReport> DiffReportFromProto(const v1::DiffReport& proto) {
  DiffReport report;
  report.num_tensors_equal = proto.num_tensors_equal();
  report.num_objects_equal = proto.num_objects_equal();
  report.bytes_compared = proto.bytes_compared();
  report.containers_skipped = proto.containers_skipped();
  report.warnings.assign(proto.warnings().begin(), proto.warnings().end());
  for (const v1::DiffFinding& finding : proto.findings()) {
    DiffFinding& made = report.findings.emplace_back();
    DCP_ASSIGN_OR_RETURN(made.kind, KnownKind(finding.kind()));
    made.name = finding.name();
    made.in_a = finding.in_a();
    made.in_b = finding.in_b();
    made.num_elements = finding.num_elements();
    made.difference.num_different = finding.num_different();
    made.difference.first_different = finding.first_different();
    made.first_index.assign(finding.first_index().begin(),
                            finding.first_index().end());
    made.difference.max_rel = finding.max_rel_difference();
    made.difference.max_abs = finding.max_abs_difference();
    made.difference.max_ulp = finding.max_ulp();
  }
  return report;
}

void ConvertPlanToProto(const ConvertPlan& plan, v1::ConvertResult& proto) {
  proto.set_from(FormatToProto(plan.from));
  proto.set_to(FormatToProto(plan.to));
  proto.set_num_files(plan.files.size());
  ListToProto(
      plan.files, *proto.mutable_files(),
      [](const ConvertPlan::OutputFile& file, v1::ConvertResult::File& made) {
        made.set_name(Text(file.name));
        made.set_num_bytes(file.bytes);
      });
  proto.set_num_tensors(plan.num_tensors);
  proto.set_num_objects(plan.num_objects);
  proto.set_bytes_to_read(plan.bytes_to_read);
  proto.set_bytes_to_write(plan.bytes_to_write);
  proto.set_memory_bytes(plan.memory_bytes);
  WarningsToProto(plan.warnings, *proto.mutable_warnings());
  proto.set_num_dropped(plan.dropped.size());
  NamesToProto(plan.dropped, kMaxFindings, *proto.mutable_dropped());
  if (plan.map.has_value()) PlannedMapToProto(*plan.map, *proto.mutable_map());
  if (plan.check.checked) {
    v1::ConvertResult::SourceCheck& check = *proto.mutable_source_check();
    check.set_num_crcs_checked(plan.check.num_crcs_checked);
    check.set_num_digests_checked(plan.check.num_digests_checked);
    check.set_bytes_checked(plan.check.bytes_checked);
    check.set_num_items_unchecked(plan.check.num_items_unchecked);
    check.set_bytes_unchecked(plan.check.bytes_unchecked);
  }
  proto.set_num_cast_losses(plan.cast_losses.size());
  ListToProto(plan.cast_losses, *proto.mutable_cast_losses(),
              [](const CastLoss& loss, v1::ConvertResult::CastLoss& made) {
                made.set_name(Text(loss.name));
                made.set_dtype(std::string(TorchName(loss.dtype)));
                made.set_num_beyond(loss.num_beyond);
              });
  NamesToProto(plan.dropped_metadata, kMaxFindings,
               *proto.mutable_dropped_metadata());
  NamesToProto(plan.dropped_config, kMaxFindings,
               *proto.mutable_dropped_config());
  NamesToProto(plan.not_copied, kMaxFindings, *proto.mutable_not_copied());
  for (const std::string& name : plan.code_left_out) {
    if (proto.code_left_out().size() == kMaxFindings) break;
    proto.add_code_left_out(Text(name));
  }
}

absl::StatusOr<ConvertPlan> ConvertPlanFromProto(
    const v1::ConvertResult& proto) {
  ConvertPlan plan;
  DCP_ASSIGN_OR_RETURN(plan.from, AnsweredFormatFromProto(proto.from()));
  DCP_ASSIGN_OR_RETURN(plan.to, AnsweredFormatFromProto(proto.to()));
  for (const v1::ConvertResult::File& file : proto.files()) {
    plan.files.push_back({.name = file.name(), .bytes = file.num_bytes()});
  }
  plan.num_tensors = proto.num_tensors();
  plan.num_objects = proto.num_objects();
  plan.bytes_to_read = proto.bytes_to_read();
  plan.bytes_to_write = proto.bytes_to_write();
  plan.memory_bytes = proto.memory_bytes();
  plan.warnings.assign(proto.warnings().begin(), proto.warnings().end());
  plan.dropped.assign(proto.dropped().begin(), proto.dropped().end());
  plan.dropped_metadata.assign(proto.dropped_metadata().begin(),
                               proto.dropped_metadata().end());
  plan.code_left_out.assign(proto.code_left_out().begin(),
                            proto.code_left_out().end());
  plan.not_copied.assign(proto.not_copied().begin(), proto.not_copied().end());
  plan.dropped_config.assign(proto.dropped_config().begin(),
                             proto.dropped_config().end());
  if (proto.has_map()) plan.map = PlannedMapFromProto(proto.map());
  if (proto.has_source_check()) {
    const v1::ConvertResult::SourceCheck& check = proto.source_check();
    plan.check = {.checked = true,
                  .num_crcs_checked = check.num_crcs_checked(),
                  .num_digests_checked = check.num_digests_checked(),
                  .bytes_checked = check.bytes_checked(),
                  .num_items_unchecked = check.num_items_unchecked(),
                  .bytes_unchecked = check.bytes_unchecked()};
  }
  for (const v1::ConvertResult::CastLoss& loss : proto.cast_losses()) {
    CastLoss& made = plan.cast_losses.emplace_back();
    made.name = loss.name();
    made.num_beyond = loss.num_beyond();
    DCP_ASSIGN_OR_RETURN(made.dtype, ParseDType(loss.dtype()));
  }
  return plan;
}

}  // namespace dcp
