#include "tools/dcp_convert/daemon_messages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/tensor/placement.h"

namespace dcp::tools {
namespace {

namespace v1 = tessera::v1;

v1::Format FormatMessage(std::optional<Format> format) {
  if (!format.has_value()) return v1::FORMAT_UNSPECIFIED;
  switch (*format) {
    case Format::kDcp:
      return v1::FORMAT_DCP;
    case Format::kSafetensors:
      return v1::FORMAT_SAFETENSORS;
    case Format::kTorch:
      return v1::FORMAT_TORCH;
  }
  return v1::FORMAT_UNSPECIFIED;
}

absl::StatusOr<Format> FormatFrom(v1::Format format) {
  switch (format) {
    case v1::FORMAT_DCP:
      return Format::kDcp;
    case v1::FORMAT_SAFETENSORS:
      return Format::kSafetensors;
    case v1::FORMAT_TORCH:
      return Format::kTorch;
    default:
      return absl::DataLossError(
          absl::StrCat("the server says format ", format));
  }
}

void AddPlacements(const Placements& placements, v1::PlacementRule& rule) {
  for (const Placement& placement : placements) {
    v1::Placement& made = *rule.add_placements();
    switch (placement.kind) {
      case Placement::Kind::kReplicate:
        made.mutable_replicate();
        break;
      case Placement::Kind::kShard:
        made.mutable_shard()->set_dim(placement.dim);
        break;
      case Placement::Kind::kStridedShard:
        made.mutable_strided_shard()->set_dim(placement.dim);
        made.mutable_strided_shard()->set_split_factor(placement.split_factor);
        break;
    }
  }
}

// The fields that all requests that write have in common.
template <typename Request>
Request WritingMessage(const CommandLine& line) {
  Request request;
  *request.mutable_source() = SourceMessage(line.paths[0], line.rank);
  request.mutable_destination()->set_path(line.paths[1]);
  request.mutable_destination()->set_overwrite(line.overwrite);
  *request.mutable_selection() = SelectionMessage(line.selection);
  request.set_max_shard_bytes(line.max_shard_bytes);
  request.mutable_options()->set_validate_only(line.plan);
  // The server has its own default.
  if (line.memory_bytes != kDefaultMemoryBytes) {
    request.mutable_options()->set_memory_bytes(line.memory_bytes);
  }
  request.mutable_options()->set_no_verify(line.no_verify);
  request.mutable_options()->set_strict_cast(line.strict_cast);
  return request;
}

template <typename Request>
void AddMetadata(const CommandLine& line, Request& request) {
  request.set_drop_metadata(line.drop_metadata);
  request.set_no_copy_config(line.no_copy_config);
  for (const auto& [key, value] : line.metadata) {
    (*request.mutable_metadata())[key] = value;
  }
}

template <typename Request>
void AddMesh(const CommandLine& line, Request& request) {
  if (!line.mesh.has_value()) return;
  for (const Mesh::Axis& axis : line.mesh->axes) {
    v1::Mesh::Axis& made = *request.mutable_mesh()->add_axes();
    made.set_name(axis.name);
    made.set_size(axis.size);
  }
  for (const PlacementRule& rule : line.placements) {
    v1::PlacementRule& made = *request.add_placements();
    made.set_glob(rule.glob);
    AddPlacements(rule.placements, made);
  }
}

absl::StatusOr<DiffFinding::Kind> KindFrom(v1::DiffFinding::Kind kind) {
  switch (kind) {
    case v1::DiffFinding::KIND_ONLY_IN_A:
      return DiffFinding::Kind::kOnlyInA;
    case v1::DiffFinding::KIND_ONLY_IN_B:
      return DiffFinding::Kind::kOnlyInB;
    case v1::DiffFinding::KIND_KIND:
      return DiffFinding::Kind::kKind;
    case v1::DiffFinding::KIND_SHAPE:
      return DiffFinding::Kind::kShape;
    case v1::DiffFinding::KIND_DTYPE:
      return DiffFinding::Kind::kDType;
    case v1::DiffFinding::KIND_VALUES:
      return DiffFinding::Kind::kValues;
    case v1::DiffFinding::KIND_OBJECT:
      return DiffFinding::Kind::kObject;
    case v1::DiffFinding::KIND_CONTAINER:
      return DiffFinding::Kind::kContainer;
    default:
      return absl::DataLossError(
          absl::StrCat("the server says difference ", kind));
  }
}

// Checks that these can be the dimensions of a tensor.
absl::StatusOr<Dims> DimsFrom(
    const google::protobuf::RepeatedField<int64_t>& numbers,
    const std::string& name) {
  Dims dims;
  for (int64_t number : numbers) {
    if (number < 0 || dims.size() >= kMaxDims) {
      return absl::DataLossError(
          absl::StrCat(name, ": the server says dimension ", number));
    }
    dims.push_back(number);
  }
  return dims;
}

// Numbers files in the order in which they are first named.
class FileNumbers {
 public:
  explicit FileNumbers(Inspection& inspection) : inspection_(inspection) {
    for (uint32_t i = 0; i < inspection.files.size(); ++i) {
      numbers_[inspection.files[i].name] = i;
    }
  }
  uint32_t Of(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(
        name, static_cast<uint32_t>(inspection_.files.size()));
    if (is_new) inspection_.files.push_back({name, std::nullopt});
    return found->second;
  }

 private:
  Inspection& inspection_;
  std::map<std::string, uint32_t> numbers_;
};

absl::StatusOr<TensorEntry> TensorFrom(const v1::Tensor& message,
                                       FileNumbers& files) {
  TensorEntry tensor;
  DCP_ASSIGN_OR_RETURN(tensor.dtype, ParseDType(message.dtype()));
  DCP_ASSIGN_OR_RETURN(tensor.shape, DimsFrom(message.shape(), message.name()));
  for (const v1::Chunk& chunk : message.chunks()) {
    Box& box = tensor.boxes.emplace_back();
    DCP_ASSIGN_OR_RETURN(box.offsets,
                         DimsFrom(chunk.box().offsets(), message.name()));
    DCP_ASSIGN_OR_RETURN(box.sizes,
                         DimsFrom(chunk.box().sizes(), message.name()));
    if (box.offsets.size() != tensor.shape.size() ||
        box.sizes.size() != tensor.shape.size()) {
      return absl::DataLossError(
          absl::StrCat(message.name(), ": a chunk of other dimensions"));
    }
    ChunkLocation& location = tensor.locations.emplace_back();
    location.item.file = files.Of(chunk.file());
    location.item.offset = chunk.offset();
    location.item.length = chunk.length();
  }
  return tensor;
}

}  // namespace

v1::Source SourceMessage(const std::string& path, int64_t rank) {
  v1::Source source;
  source.set_path(path);
  if (rank >= 0) source.set_rank(rank);
  return source;
}

v1::Selection SelectionMessage(const SelectionOptions& selection) {
  v1::Selection message;
  for (const std::string& text : selection.include) message.add_include(text);
  for (const std::string& text : selection.exclude) message.add_exclude(text);
  for (const std::string& text : selection.renames) message.add_renames(text);
  for (const std::string& text : selection.casts) message.add_casts(text);
  return message;
}

v1::ConvertRequest ConvertMessage(const CommandLine& line) {
  auto request = WritingMessage<v1::ConvertRequest>(line);
  AddMesh(line, request);
  request.set_drop_non_tensors(line.drop_non_tensors);
  AddMetadata(line, request);
  request.set_drop_unreadable(line.drop_unreadable);
  std::optional<Format> to = line.to;
  if (line.verb == Verb::kDcpToTorch) to = Format::kTorch;
  if (line.verb == Verb::kTorchToDcp) to = Format::kDcp;
  request.set_format(FormatMessage(to));
  return request;
}

v1::ReshardRequest ReshardMessage(const CommandLine& line) {
  auto request = WritingMessage<v1::ReshardRequest>(line);
  AddMesh(line, request);
  request.set_drop_unreadable(line.drop_unreadable);
  return request;
}

v1::ConsolidateRequest ConsolidateMessage(const CommandLine& line) {
  auto request = WritingMessage<v1::ConsolidateRequest>(line);
  request.set_drop_non_tensors(line.drop_non_tensors);
  AddMetadata(line, request);
  request.set_drop_unreadable(line.drop_unreadable);
  request.set_format(FormatMessage(
      line.to.has_value() ? line.to : FormatFromName(line.paths[1])));
  return request;
}

v1::VerifyCheckpointRequest VerifyMessage(const CommandLine& line) {
  v1::VerifyCheckpointRequest request;
  *request.mutable_source() = SourceMessage(line.paths[0], line.rank);
  request.set_sample_percent(line.sample_percent);
  return request;
}

v1::DiffRequest DiffMessage(const CommandLine& line) {
  v1::DiffRequest request;
  *request.mutable_a() = SourceMessage(line.paths[0], line.rank);
  *request.mutable_b() = SourceMessage(line.paths[1], line.rank);
  *request.mutable_selection_a() = SelectionMessage(line.selection);
  // As without a server: with renames the patterns are about A's old names.
  if (line.selection.renames.empty()) {
    SelectionOptions selection_b;
    selection_b.include = line.selection.include;
    selection_b.exclude = line.selection.exclude;
    *request.mutable_selection_b() = SelectionMessage(selection_b);
  }
  request.set_tensors_only(line.tensors_only);
  if (line.tolerance.has_value()) {
    v1::DiffRequest::Tolerance& tolerance = *request.mutable_tolerance();
    tolerance.set_atol(line.tolerance->atol);
    tolerance.set_rtol(line.tolerance->rtol);
    tolerance.set_nan_differs(!line.tolerance->equal_nan);
  }
  return request;
}

absl::StatusOr<VerifyReport> VerifyReportFrom(const v1::VerifyReport& message) {
  VerifyReport report;
  DCP_ASSIGN_OR_RETURN(report.format, FormatFrom(message.format()));
  report.num_tensors = message.num_tensors();
  report.num_objects = message.num_objects();
  report.num_chunks = message.num_chunks();
  report.num_items = message.num_items();
  report.num_items_checked = message.num_items_checked();
  report.num_crcs_checked = message.num_crcs_checked();
  report.num_digests_checked = message.num_digests_checked();
  report.num_items_unchecked = message.num_items_unchecked();
  report.bytes_checked = message.bytes_checked();
  for (const v1::VerifyFinding& finding : message.findings()) {
    report.findings.push_back({.name = finding.name(),
                               .file = finding.file(),
                               .offset = finding.offset(),
                               .problem = finding.problem()});
  }
  if (message.num_findings() > report.findings.size()) {
    report.findings.push_back(
        {.name = "",
         .file = "",
         .offset = 0,
         .problem =
             absl::StrCat(message.num_findings() - report.findings.size(),
                          " more problems, which the server does not list")});
  }
  return report;
}

absl::StatusOr<DiffReport> DiffReportFrom(const v1::DiffReport& message) {
  DiffReport report;
  report.num_tensors_equal = message.num_tensors_equal();
  report.num_objects_equal = message.num_objects_equal();
  report.bytes_compared = message.bytes_compared();
  report.containers_skipped = message.containers_skipped();
  for (const v1::DiffFinding& finding : message.findings()) {
    DiffFinding& made = report.findings.emplace_back();
    DCP_ASSIGN_OR_RETURN(made.kind, KindFrom(finding.kind()));
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

absl::StatusOr<ConvertPlan> ConvertPlanFrom(const v1::ConvertResult& message) {
  ConvertPlan plan;
  DCP_ASSIGN_OR_RETURN(plan.from, FormatFrom(message.from()));
  DCP_ASSIGN_OR_RETURN(plan.to, FormatFrom(message.to()));
  for (const v1::ConvertResult::File& file : message.files()) {
    plan.files.push_back({.name = file.name(), .bytes = file.num_bytes()});
  }
  plan.num_tensors = message.num_tensors();
  plan.num_objects = message.num_objects();
  plan.bytes_to_read = message.bytes_to_read();
  plan.bytes_to_write = message.bytes_to_write();
  plan.memory_bytes = message.memory_bytes();
  plan.dropped.assign(message.dropped().begin(), message.dropped().end());
  plan.dropped_metadata.assign(message.dropped_metadata().begin(),
                               message.dropped_metadata().end());
  plan.code_left_out.assign(message.code_left_out().begin(),
                            message.code_left_out().end());
  if (message.has_source_check()) {
    const v1::ConvertResult::SourceCheck& check = message.source_check();
    plan.check = {.checked = true,
                  .num_crcs_checked = check.num_crcs_checked(),
                  .num_digests_checked = check.num_digests_checked(),
                  .bytes_checked = check.bytes_checked(),
                  .num_items_unchecked = check.num_items_unchecked(),
                  .bytes_unchecked = check.bytes_unchecked()};
  }
  for (const v1::ConvertResult::CastLoss& loss : message.cast_losses()) {
    CastLoss& made = plan.cast_losses.emplace_back();
    made.name = loss.name();
    made.num_beyond = loss.num_beyond();
    DCP_ASSIGN_OR_RETURN(made.dtype, ParseDType(loss.dtype()));
  }
  return plan;
}

absl::StatusOr<OwnedInspection> InspectionFrom(
    const v1::InspectResponse& message) {
  OwnedInspection owned;
  Inspection files_only;
  for (const v1::InspectResponse::File& file : message.files()) {
    files_only.files.push_back(
        {file.name(), file.has_num_bytes()
                          ? std::optional<uint64_t>(file.num_bytes())
                          : std::nullopt});
  }
  FileNumbers files(files_only);
  for (const v1::Tensor& tensor : message.tensors()) {
    CheckpointEntry& entry = owned.entries.emplace_back();
    entry.fqn = tensor.name();
    DCP_ASSIGN_OR_RETURN(entry.value, TensorFrom(tensor, files));
  }
  std::vector<std::string> texts;
  for (const v1::Object& object : message.objects()) {
    CheckpointEntry& entry = owned.entries.emplace_back();
    entry.fqn = object.name();
    entry.value = ObjectEntry();
    texts.push_back(object.text());
  }
  owned.inspection = InspectEntries(owned.entries, "");
  owned.inspection.files = std::move(files_only.files);
  owned.inspection.object_texts = std::move(texts);
  DCP_ASSIGN_OR_RETURN(owned.inspection.format, FormatFrom(message.format()));
  for (const auto& property : message.properties()) {
    owned.inspection.properties.emplace_back(property.first, property.second);
  }
  std::sort(owned.inspection.properties.begin(),
            owned.inspection.properties.end());
  owned.num_entries = message.num_tensors() + message.num_objects();
  return owned;
}

}  // namespace dcp::tools
