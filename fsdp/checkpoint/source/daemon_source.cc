// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/daemon_source.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/checkpoint_url.h"
#include "dcp/base/bytes.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/mapped/mapped_names.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "fsdp/checkpoint/source/daemon_reader.h"
#include "proto/messages/map_messages.h"

namespace fsdp {
namespace {

namespace v1 = tessera::v1;

// The most names that a daemon accepts in one request.
constexpr size_t kMaxNames = 1000;

// A glob that matches only `name`.
std::string ExactGlob(absl::string_view name) {
  std::string glob;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') glob += '\\';
    glob += c;
  }
  return glob;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonSource>> DaemonSource::Open(
    const std::string& url, dcp::client::ClientOptions options,
    const std::optional<dcp::MapSpec>& map, std::stop_token stop) {
  DCP_ASSIGN_OR_RETURN(const dcp::client::CheckpointUrl parsed,
                       dcp::client::ParseCheckpointUrl(url));
  if (!parsed.address.empty()) options.address = parsed.address;
  absl::StatusOr<std::shared_ptr<dcp::client::Channel>> channel =
      dcp::client::Channel::Open(options);
  if (!channel.ok()) return dcp::Annotate(channel.status(), url);
  std::unique_ptr<DaemonSource> source(
      new DaemonSource(url, *std::move(channel)));
  DCP_RETURN_IF_ERROR(
      dcp::Annotate(source->Inspect(parsed.path, map, std::move(stop)), url));
  return source;
}

absl::Status DaemonSource::Inspect(const std::string& path,
                                   const std::optional<dcp::MapSpec>& map,
                                   std::stop_token stop) {
  source_.set_path(path);
  if (map.has_value()) dcp::MapToProto(*map, *source_.mutable_map());
  v1::InspectRequest request;
  *request.mutable_source() = source_;
  DCP_ASSIGN_OR_RETURN(
      const v1::InspectResponse inspected,
      client_.Inspect(std::move(request), {.stop = std::move(stop)}));
  etag_ = inspected.etag();
  for (const std::string& warning : inspected.warnings()) {
    DCP_LOG(kWarning) << "event=checkpoint_lacks path=" << path
                      << " what=" << warning;
  }
  std::vector<absl::string_view> names;
  for (const v1::Tensor& tensor : inspected.tensors()) {
    const std::optional<dcp::DType> dtype =
        dcp::DTypeFromTorchName(tensor.dtype());
    if (!dtype.has_value()) {
      return absl::DataLossError(absl::StrCat(
          "Inspect: ", tensor.name(), " has dtype '", tensor.dtype(), "'"));
    }
    entries_.try_emplace(
        tensor.name(),
        Entry{.is_tensor = true,
              .dtype = *dtype,
              .shape = dcp::Dims(tensor.shape().begin(), tensor.shape().end()),
              .made_of = tensor.made_of()});
    names.push_back(tensor.name());
  }
  if (map.has_value()) names_made_ = dcp::NamesMade(*map, names);
  for (const v1::Object& object : inspected.objects()) {
    entries_.try_emplace(
        object.name(),
        Entry{.is_tensor = false, .dtype = dcp::DType::kFloat32, .shape = {}});
  }
  return absl::OkStatus();
}

std::optional<StoredEntry> DaemonSource::Find(absl::string_view name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return std::nullopt;
  return StoredEntry{.is_tensor = entry->second.is_tensor,
                     .dtype = entry->second.dtype,
                     .shape = entry->second.shape,
                     .made_of = entry->second.made_of};
}

absl::StatusOr<absl::flat_hash_map<std::string, dcp::Value>>
DaemonSource::ReadObjects(const absl::flat_hash_set<std::string>& names,
                          std::stop_token stop) {
  std::vector<std::string> present;
  for (const std::string& name : names) {
    const auto entry = entries_.find(name);
    if (entry != entries_.end() && !entry->second.is_tensor) {
      present.push_back(name);
    }
  }
  absl::flat_hash_map<std::string, dcp::Value> values;
  for (size_t begin = 0; begin < present.size(); begin += kMaxNames) {
    v1::ReadObjectsRequest request;
    *request.mutable_source() = source_;
    const size_t end = std::min(present.size(), begin + kMaxNames);
    for (size_t i = begin; i < end; ++i)
      request.add_names(ExactGlob(present[i]));
    const auto objects = client_.ReadObjects(request, {.stop = stop});
    if (!objects.ok()) return dcp::Annotate(objects.status(), url_);
    for (const v1::ReadObjectsResponse& object : *objects) {
      const absl::StatusOr<dcp::PickleResult> pickle =
          dcp::ReadPickle(dcp::AsBytes(object.pickle()),
                          {.allow_global = dcp::IsStateDictGlobal}, arena_);
      if (!pickle.ok()) {
        return dcp::Annotate(pickle.status(), url_, ": ", object.name());
      }
      values[object.name()] = pickle->root;
    }
  }
  return values;
}

absl::Status DaemonSource::ReadTensors(
    absl::Span<const dcp::LoadTensor> tensors, const ReadOptions& options) {
  return dcp::Annotate(
      DaemonReader(client_, source_, etag_, tensors, options).Run(), url_);
}

}  // namespace fsdp
