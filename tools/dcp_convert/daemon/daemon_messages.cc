#include "tools/dcp_convert/daemon/daemon_messages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/tensor/placement.h"
#include "proto/messages/entry_messages.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/layout_messages.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"

namespace dcp::tools {
namespace {

namespace v1 = tessera::v1;

v1::Format FormatMessage(std::optional<Format> format) {
  return format.has_value() ? FormatToProto(*format) : v1::FORMAT_UNSPECIFIED;
}

// The fields that all requests that write have in common.
template <typename Request>
Request WritingMessage(const CommandLine& line) {
  Request request;
  SourceToProto(line.paths[0], SourceOptionsOf(line),
                *request.mutable_source());
  request.mutable_destination()->set_path(line.paths[1]);
  request.mutable_destination()->set_overwrite(line.overwrite);
  SelectionToProto(line.selection, *request.mutable_selection());
  request.set_max_shard_bytes(line.max_shard_bytes);
  request.mutable_options()->set_validate_only(line.plan);
  // The server has its own default.
  if (line.memory_bytes != kDefaultMemoryBytes) {
    request.mutable_options()->set_memory_bytes(line.memory_bytes);
  }
  request.mutable_options()->set_no_verify(line.no_verify);
  request.mutable_options()->set_strict_cast(line.strict_cast);
  request.mutable_options()->set_check_padding(line.check_padding);
  request.mutable_options()->set_allow_losses(line.allow_losses);
  if (line.share.has_value()) {
    request.mutable_share()->set_index(line.share->index);
    request.mutable_share()->set_count(line.share->count);
  }
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
  MeshToProto(*line.mesh, *request.mutable_mesh());
  for (const PlacementRule& rule : line.placements) {
    PlacementRuleToProto(rule, *request.add_placements());
  }
  for (const NamedMesh& other : line.other_meshes) {
    NamedMeshToProto(other, *request.add_other_meshes());
  }
  if (line.tensor_parallel.has_value()) {
    TensorParallelToProto(*line.tensor_parallel,
                          *request.mutable_tensor_parallel());
  }
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

}  // namespace

v1::ConvertRequest ConvertMessage(const CommandLine& line) {
  auto request = WritingMessage<v1::ConvertRequest>(line);
  AddMesh(line, request);
  request.set_drop_non_tensors(line.drop_non_tensors);
  AddMetadata(line, request);
  request.set_drop_unreadable(line.drop_unreadable);
  if (line.to_dialect.has_value()) {
    request.set_to_dialect(std::string(DialectName(*line.to_dialect)));
  }
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
      line.to.has_value() ? line.to : FormatOfFileName(line.paths[1])));
  return request;
}

v1::VerifyCheckpointRequest VerifyMessage(const CommandLine& line) {
  v1::VerifyCheckpointRequest request;
  SourceToProto(line.paths[0], SourceOptionsOf(line),
                *request.mutable_source());
  request.set_sample_percent(line.sample_percent);
  return request;
}

v1::DiffRequest DiffMessage(const CommandLine& line) {
  v1::DiffRequest request;
  SourceToProto(line.paths[0], SourceOptionsOf(line), *request.mutable_a());
  SourceToProto(line.paths[1], SecondSourceOptionsOf(line),
                *request.mutable_b());
  SelectionToProto(line.selection, *request.mutable_selection_a());
  SelectionToProto(SecondSelectionOf(line), *request.mutable_selection_b());
  request.set_tensors_only(ComparesTensorsOnly(line));
  if (line.tolerance.has_value()) {
    ToleranceToProto(*line.tolerance, *request.mutable_tolerance());
  }
  return request;
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
    DCP_ASSIGN_OR_RETURN(
        entry.value, TensorFromProto(tensor, [&files](const std::string& name) {
          return files.Of(name);
        }));
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
  DCP_ASSIGN_OR_RETURN(owned.inspection.format,
                       AnsweredFormatFromProto(message.format()));
  for (const auto& property : message.properties()) {
    owned.inspection.properties.emplace_back(property.first, property.second);
  }
  std::sort(owned.inspection.properties.begin(),
            owned.inspection.properties.end());
  owned.inspection.warnings.assign(message.warnings().begin(),
                                   message.warnings().end());
  owned.num_entries = message.num_tensors() + message.num_objects();
  return owned;
}

}  // namespace dcp::tools
