// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/daemon/daemon_messages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "proto/messages/convert_messages.h"
#include "proto/messages/entry_messages.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/report_messages.h"
#include "proto/messages/request_messages.h"

namespace dcp::tools {
namespace {

namespace v1 = tessera::v1;

template <typename Request>
Request WritingMessage(const CommandLine& line) {
  Request request;
  ConvertSpecToProto(MakeConvertSpec(line), request);
  SourceToProto(line.paths[0], SourceOpenOptions(line),
                *request.mutable_source());
  request.mutable_destination()->set_path(line.write.dst.text());
  request.mutable_options()->set_validate_only(line.write.plan);
  // The server has its own default.
  if (line.memory_bytes != kDefaultMemoryBytes) {
    request.mutable_options()->set_memory_bytes(line.memory_bytes);
  }
  if (line.work.share.has_value()) {
    request.mutable_share()->set_index(line.work.share->index);
    request.mutable_share()->set_count(line.work.share->count);
  }
  return request;
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
  return WritingMessage<v1::ConvertRequest>(line);
}

v1::ReshardRequest ReshardMessage(const CommandLine& line) {
  return WritingMessage<v1::ReshardRequest>(line);
}

v1::ConsolidateRequest ConsolidateMessage(const CommandLine& line) {
  return WritingMessage<v1::ConsolidateRequest>(line);
}

v1::VerifyCheckpointRequest VerifyMessage(const CommandLine& line) {
  v1::VerifyCheckpointRequest request;
  SourceToProto(line.paths[0], SourceOpenOptions(line),
                *request.mutable_source());
  request.set_sample_percent(line.verify.sample_percent);
  return request;
}

v1::DiffRequest DiffMessage(const CommandLine& line) {
  v1::DiffRequest request;
  SourceToProto(line.paths[0], SourceOpenOptions(line), *request.mutable_a());
  SourceToProto(line.paths[1], SecondSourceOpenOptions(line),
                *request.mutable_b());
  SelectionToProto(line.selection, *request.mutable_selection_a());
  SelectionToProto(SecondSelection(line), *request.mutable_selection_b());
  request.set_tensors_only(ComparesTensorsOnly(line));
  if (line.diff.tolerance.has_value()) {
    ToleranceToProto(*line.diff.tolerance, *request.mutable_tolerance());
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
