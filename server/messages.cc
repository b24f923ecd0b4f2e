#include "server/messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "proto/error_detail.h"
#include "proto/utf8.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

// The longest path that Linux opens.
constexpr size_t kMaxPathBytes = 4096;

// Globs in one list, and casts: each is tried on every name.
constexpr int kMaxGlobs = 1000;
// Renames: each may rewrite every name.
constexpr int kMaxRenames = 100;
// People write patterns; this is enough.
constexpr size_t kMaxPatternBytes = 1024;

// Placement rules: each is tried on every name.
constexpr int kMaxPlacementRules = 10'000;

// Axes of a mesh; each costs time for each part of each tensor. PyTorch's own
// meshes have four or five.
constexpr int kMaxAxes = 16;

// Findings in one report, as documented in the API.
constexpr size_t kMaxFindings = 10'000;
// Bytes of a list in one message: receivers accept 4 MiB by default.
constexpr size_t kMaxListBytes = size_t{3} << 20;
// Bytes of a finding's text, or of a value: enough for a person.
constexpr size_t kMaxTextBytes = 1000;

template <typename... Parts>
absl::Status Invalid(absl::string_view field, const Parts&... parts) {
  return InvalidField(field, absl::StrCat(parts...));
}

std::string Index(absl::string_view field, int i) {
  return absl::StrCat(field, "[", i, "]");
}

bool IsAxisName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxPatternBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-';
         });
}

absl::Status CheckPattern(absl::string_view pattern, absl::string_view field) {
  if (pattern.find('\0') != absl::string_view::npos) {
    return Invalid(field, " has a NUL in it");
  }
  if (pattern.size() > kMaxPatternBytes) {
    return Invalid(field, " has ", pattern.size(), " bytes: at most ",
                   kMaxPatternBytes, " are allowed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PatternsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, int limit,
    absl::string_view field) {
  if (patterns.size() > limit) {
    return Invalid(field, " has ", patterns.size(), " entries: at most ", limit,
                   " are allowed");
  }
  for (int i = 0; i < patterns.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckPattern(patterns[i], Index(field, i)));
    if (patterns[i].empty()) return Invalid(Index(field, i), " is empty");
  }
  return std::vector<std::string>(patterns.begin(), patterns.end());
}

absl::Status CheckDim(int64_t dim, absl::string_view field) {
  if (dim >= 0 && dim < static_cast<int64_t>(kMaxDims)) return absl::OkStatus();
  return Invalid(absl::StrCat(field, ".dim"), " is ", dim, ": 0 to ",
                 kMaxDims - 1, " are allowed");
}

std::string Text(absl::string_view text) {
  const std::string utf8 = ToUtf8(text.substr(0, kMaxTextBytes));
  return std::string(Utf8Prefix(utf8, kMaxTextBytes));
}

// Converts `values` with `convert` into `list`, up to the limits of a message.
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

v1::DiffFinding::Kind DiffKindToProto(DiffFinding::Kind kind) {
  switch (kind) {
    case DiffFinding::Kind::kOnlyInA:
      return v1::DiffFinding::KIND_ONLY_IN_A;
    case DiffFinding::Kind::kOnlyInB:
      return v1::DiffFinding::KIND_ONLY_IN_B;
    case DiffFinding::Kind::kKind:
      return v1::DiffFinding::KIND_KIND;
    case DiffFinding::Kind::kShape:
      return v1::DiffFinding::KIND_SHAPE;
    case DiffFinding::Kind::kDType:
      return v1::DiffFinding::KIND_DTYPE;
    case DiffFinding::Kind::kValues:
      return v1::DiffFinding::KIND_VALUES;
    case DiffFinding::Kind::kObject:
      return v1::DiffFinding::KIND_OBJECT;
    case DiffFinding::Kind::kContainer:
      return v1::DiffFinding::KIND_CONTAINER;
  }
  return v1::DiffFinding::KIND_UNSPECIFIED;
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

}  // namespace

absl::StatusOr<SourceSpec> SourceFromProto(const v1::Source& source,
                                           absl::string_view field) {
  const std::string path_field = absl::StrCat(field, ".path");
  if (source.path().empty()) return Invalid(path_field, " is empty");
  if (source.path().size() > kMaxPathBytes) {
    return Invalid(path_field, " has ", source.path().size(),
                   " bytes: at most ", kMaxPathBytes, " are allowed");
  }
  if (source.path().find('\0') != std::string::npos) {
    return Invalid(path_field, " has a NUL in it");
  }
  SourceSpec spec{.path = source.path(), .open = {}};
  if (!source.has_rank()) return spec;
  if (source.rank() < 0 || source.rank() >= kMaxRanks) {
    return Invalid(absl::StrCat(field, ".rank"), " is ", source.rank(),
                   ": 0 to ", kMaxRanks - 1, " are allowed");
  }
  spec.open.rank = source.rank();
  return spec;
}

absl::StatusOr<std::optional<Format>> FormatFromProto(v1::Format format,
                                                      absl::string_view field) {
  switch (format) {
    case v1::FORMAT_UNSPECIFIED:
      return std::optional<Format>();
    case v1::FORMAT_DCP:
      return std::optional<Format>(Format::kDcp);
    case v1::FORMAT_SAFETENSORS:
      return std::optional<Format>(Format::kSafetensors);
    case v1::FORMAT_TORCH:
      return std::optional<Format>(Format::kTorch);
    default:
      return Invalid(field, " is ", static_cast<int>(format),
                     ": it is not a format that this server knows");
  }
}

absl::StatusOr<Box> BoxFromProto(const v1::Box& box, absl::string_view field) {
  if (box.offsets_size() != box.sizes_size()) {
    return Invalid(field, " has ", box.offsets_size(), " offsets and ",
                   box.sizes_size(), " sizes: there must be as many");
  }
  if (box.sizes_size() > static_cast<int>(kMaxDims)) {
    return Invalid(field, " has ", box.sizes_size(), " dimensions: at most ",
                   kMaxDims, " are allowed");
  }
  for (int d = 0; d < box.sizes_size(); ++d) {
    if (box.offsets(d) < 0) {
      return Invalid(Index(absl::StrCat(field, ".offsets"), d), " is ",
                     box.offsets(d), ": must not be negative");
    }
    if (box.sizes(d) < 0) {
      return Invalid(Index(absl::StrCat(field, ".sizes"), d), " is ",
                     box.sizes(d), ": must not be negative");
    }
  }
  return Box{.offsets = Dims(box.offsets().begin(), box.offsets().end()),
             .sizes = Dims(box.sizes().begin(), box.sizes().end())};
}

absl::StatusOr<Mesh> MeshFromProto(const v1::Mesh& mesh,
                                   absl::string_view field) {
  if (mesh.axes_size() < 1 || mesh.axes_size() > kMaxAxes) {
    return Invalid(absl::StrCat(field, ".axes"), " has ", mesh.axes_size(),
                   " entries: 1 to ", kMaxAxes, " are allowed");
  }
  Mesh result;
  int64_t num_ranks = 1;
  for (int a = 0; a < mesh.axes_size(); ++a) {
    const v1::Mesh::Axis& axis = mesh.axes(a);
    const std::string where = Index(absl::StrCat(field, ".axes"), a);
    if (!IsAxisName(axis.name())) {
      return Invalid(absl::StrCat(where, ".name"), " is '", Text(axis.name()),
                     "': letters, digits, _ and - are allowed");
    }
    for (const Mesh::Axis& other : result.axes) {
      if (other.name != axis.name()) continue;
      return Invalid(absl::StrCat(where, ".name"), " is '", axis.name(),
                     "': another axis has that name");
    }
    if (axis.size() < 1) {
      return Invalid(absl::StrCat(where, ".size"), " is ", axis.size(),
                     ": must be 1 or more");
    }
    if (axis.size() > kMaxRanks / num_ranks) {
      return Invalid(field, " has more than ", kMaxRanks, " ranks");
    }
    num_ranks *= axis.size();
    result.axes.push_back({.name = axis.name(), .size = axis.size()});
  }
  return result;
}

absl::StatusOr<Dims> CoordinateFromProto(
    const google::protobuf::RepeatedField<int64_t>& coordinate,
    const Mesh& mesh, absl::string_view field) {
  if (static_cast<size_t>(coordinate.size()) != mesh.axes.size()) {
    return Invalid(field, " has ", coordinate.size(), " entries: the mesh has ",
                   mesh.axes.size(), " axes");
  }
  for (int a = 0; a < coordinate.size(); ++a) {
    const Mesh::Axis& axis = mesh.axes[static_cast<size_t>(a)];
    if (coordinate[a] >= 0 && coordinate[a] < axis.size) continue;
    return Invalid(Index(field, a), " is ", coordinate[a], ": axis '",
                   axis.name, "' has 0 to ", axis.size - 1);
  }
  return Dims(coordinate.begin(), coordinate.end());
}

absl::StatusOr<Placement> PlacementFromProto(const v1::Placement& placement,
                                             absl::string_view field) {
  switch (placement.kind_case()) {
    case v1::Placement::kReplicate:
      return Placement{};
    case v1::Placement::kShard:
      DCP_RETURN_IF_ERROR(
          CheckDim(placement.shard().dim(), absl::StrCat(field, ".shard")));
      return Placement{.kind = Placement::Kind::kShard,
                       .dim = placement.shard().dim()};
    case v1::Placement::kStridedShard: {
      const auto& strided = placement.strided_shard();
      const std::string where = absl::StrCat(field, ".strided_shard");
      DCP_RETURN_IF_ERROR(CheckDim(strided.dim(), where));
      if (strided.split_factor() < 1 || strided.split_factor() > kMaxRanks) {
        return Invalid(absl::StrCat(where, ".split_factor"), " is ",
                       strided.split_factor(), ": 1 to ", kMaxRanks,
                       " are allowed");
      }
      return Placement{.kind = Placement::Kind::kStridedShard,
                       .dim = strided.dim(),
                       .split_factor = strided.split_factor()};
    }
    case v1::Placement::KIND_NOT_SET:
      break;
  }
  return Invalid(field, " says neither replicate, shard nor strided_shard");
}

absl::StatusOr<std::vector<PlacementRule>> PlacementRulesFromProto(
    const google::protobuf::RepeatedPtrField<v1::PlacementRule>& rules,
    const Mesh& mesh, absl::string_view field) {
  if (rules.size() > kMaxPlacementRules) {
    return Invalid(field, " has ", rules.size(), " entries: at most ",
                   kMaxPlacementRules, " are allowed");
  }
  std::vector<PlacementRule> result;
  for (int i = 0; i < rules.size(); ++i) {
    const v1::PlacementRule& rule = rules[i];
    const std::string where = Index(field, i);
    DCP_RETURN_IF_ERROR(
        CheckPattern(rule.glob(), absl::StrCat(where, ".glob")));
    if (static_cast<size_t>(rule.placements_size()) != mesh.axes.size()) {
      return Invalid(absl::StrCat(where, ".placements"), " has ",
                     rule.placements_size(), " entries: the mesh has ",
                     mesh.axes.size(), " axes");
    }
    PlacementRule& made = result.emplace_back();
    made.glob = rule.glob().empty() ? "*" : rule.glob();
    for (int a = 0; a < rule.placements_size(); ++a) {
      DCP_ASSIGN_OR_RETURN(
          made.placements.emplace_back(),
          PlacementFromProto(rule.placements(a),
                             Index(absl::StrCat(where, ".placements"), a)));
    }
  }
  return result;
}

absl::StatusOr<std::vector<std::string>> GlobsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& globs,
    absl::string_view field) {
  return PatternsFromProto(globs, kMaxGlobs, field);
}

absl::StatusOr<Tolerance> ToleranceFromProto(
    const v1::DiffRequest::Tolerance& tolerance, absl::string_view field) {
  for (const auto& [name, number] : {std::pair(".atol", tolerance.atol()),
                                     std::pair(".rtol", tolerance.rtol())}) {
    // The condition is false for NaN.
    if (number >= 0 && std::isfinite(number)) continue;
    return Invalid(absl::StrCat(field, name), " is ", number,
                   ": a finite number that is not negative is needed");
  }
  return Tolerance{.atol = tolerance.atol(),
                   .rtol = tolerance.rtol(),
                   .equal_nan = !tolerance.nan_differs()};
}

absl::StatusOr<SelectionOptions> SelectionFromProto(
    const v1::Selection& selection, absl::string_view field) {
  SelectionOptions options;
  DCP_ASSIGN_OR_RETURN(options.include,
                       PatternsFromProto(selection.include(), kMaxGlobs,
                                         absl::StrCat(field, ".include")));
  DCP_ASSIGN_OR_RETURN(options.exclude,
                       PatternsFromProto(selection.exclude(), kMaxGlobs,
                                         absl::StrCat(field, ".exclude")));
  DCP_ASSIGN_OR_RETURN(options.renames,
                       PatternsFromProto(selection.renames(), kMaxRenames,
                                         absl::StrCat(field, ".renames")));
  DCP_ASSIGN_OR_RETURN(options.casts,
                       PatternsFromProto(selection.casts(), kMaxGlobs,
                                         absl::StrCat(field, ".casts")));
  return options;
}

absl::StatusOr<double> SamplePercentFromProto(double percent,
                                              absl::string_view field) {
  if (percent == 0) return 100.0;
  // The condition is false for NaN.
  if (percent > 0 && percent <= 100) return percent;
  return Invalid(field, " is ", percent,
                 ": must be above 0 and at most 100, or 0 for 100");
}

v1::Format FormatToProto(Format format) {
  switch (format) {
    case Format::kDcp:
      return v1::FORMAT_DCP;
    case Format::kSafetensors:
      return v1::FORMAT_SAFETENSORS;
    case Format::kTorch:
      return v1::FORMAT_TORCH;
  }
  return v1::FORMAT_UNSPECIFIED;
}

void BoxToProto(const Box& box, v1::Box& proto) {
  proto.mutable_offsets()->Add(box.offsets.begin(), box.offsets.end());
  proto.mutable_sizes()->Add(box.sizes.begin(), box.sizes.end());
}

void MeshToProto(const Mesh& mesh, v1::Mesh& proto) {
  for (const Mesh::Axis& axis : mesh.axes) {
    v1::Mesh::Axis& made = *proto.add_axes();
    made.set_name(axis.name);
    made.set_size(axis.size);
  }
}

void PlacementToProto(const Placement& placement, v1::Placement& proto) {
  switch (placement.kind) {
    case Placement::Kind::kReplicate:
      proto.mutable_replicate();
      break;
    case Placement::Kind::kShard:
      proto.mutable_shard()->set_dim(placement.dim);
      break;
    case Placement::Kind::kStridedShard:
      proto.mutable_strided_shard()->set_dim(placement.dim);
      proto.mutable_strided_shard()->set_split_factor(placement.split_factor);
      break;
  }
}

void TensorToProto(const CheckpointEntry& entry,
                   absl::Span<const std::string> file_names,
                   v1::Tensor& proto) {
  const TensorEntry& tensor = *entry.tensor();
  proto.set_name(ToUtf8(entry.fqn));
  proto.set_dtype(std::string(TorchName(tensor.dtype)));
  proto.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  proto.set_num_bytes(tensor.num_bytes());
  proto.set_num_chunks(static_cast<uint32_t>(tensor.boxes.size()));
  if (file_names.empty()) return;
  for (size_t c = 0; c < tensor.boxes.size(); ++c) {
    const StorageInfo& item = tensor.locations[c].item;
    v1::Chunk& chunk = *proto.add_chunks();
    BoxToProto(tensor.boxes[c], *chunk.mutable_box());
    chunk.set_file(ToUtf8(file_names[item.file]));
    chunk.set_offset(item.offset);
    chunk.set_length(item.length);
  }
}

void ObjectToProto(const CheckpointEntry& entry, bool with_text,
                   v1::Object& proto) {
  proto.set_name(ToUtf8(entry.fqn));
  if (!with_text) return;
  const ObjectEntry& object = *entry.object();
  if (object.located) {
    proto.set_text(ToUtf8(ToString(object, kMaxTextBytes)));
  }
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
  proto.set_num_findings(report.findings.size());
  ListToProto(report.findings, *proto.mutable_findings(),
              [](const VerifyFinding& finding, v1::VerifyFinding& made) {
                made.set_name(Text(finding.name));
                made.set_file(Text(finding.file));
                made.set_offset(finding.offset);
                made.set_problem(Text(finding.problem));
              });
}

void DiffReportToProto(const DiffReport& report, v1::DiffReport& proto) {
  proto.set_num_tensors_equal(report.num_tensors_equal);
  proto.set_num_objects_equal(report.num_objects_equal);
  proto.set_bytes_compared(report.bytes_compared);
  proto.set_num_findings(report.findings.size());
  proto.set_containers_skipped(report.containers_skipped);
  ListToProto(report.findings, *proto.mutable_findings(), DiffFindingToProto);
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
  proto.set_num_dropped(plan.dropped.size());
  const size_t num_shown = std::min(plan.dropped.size(), kMaxFindings);
  for (size_t i = 0; i < num_shown; ++i) {
    proto.add_dropped(ToUtf8(absl::string_view(plan.dropped[i])
                                 .substr(0, kMaxListBytes / kMaxFindings)));
  }
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
  for (const std::string& key : plan.dropped_metadata) {
    if (proto.dropped_metadata().size() == kMaxFindings) break;
    proto.add_dropped_metadata(
        ToUtf8(absl::string_view(key).substr(0, kMaxListBytes / kMaxFindings)));
  }
  for (const std::string& name : plan.code_left_out) {
    if (proto.code_left_out().size() == kMaxFindings) break;
    proto.add_code_left_out(Text(name));
  }
}

}  // namespace dcp::server
