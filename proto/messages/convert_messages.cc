// SPDX-License-Identifier: Apache-2.0
// Checks and converts requests for conversions, field by field.
//
// Tested by tests/server/jobs/job_runner_test.cc.
#include "proto/messages/convert_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dcp/base/status.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/format.h"
#include "proto/messages/enum_messages.h"
#include "proto/messages/field_checks.h"
#include "proto/messages/layout_messages.h"
#include "proto/messages/request_messages.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using messages::Invalid;

template <typename Request>
concept HasFormat = requires(Request& request) {
  request.format();
};
template <typename Request>
concept HasMesh = requires(Request& request) {
  request.mesh();
};
template <typename Request>
concept HasMetadata = requires(Request& request) {
  request.metadata();
};
template <typename Request>
concept HasDialect = requires(Request& request) {
  request.to_dialect();
};

template <typename Request>
void MeshesToProto(const ConvertSpec& spec, Request& request) {
  if (!spec.mesh.has_value()) return;
  MeshToProto(*spec.mesh, *request.mutable_mesh());
  for (const PlacementRule& rule : spec.placements) {
    PlacementRuleToProto(rule, *request.add_placements());
  }
  for (const NamedMesh& other : spec.other_meshes) {
    NamedMeshToProto(other, *request.add_other_meshes());
  }
  if (spec.tensor_parallel.has_value()) {
    TensorParallelToProto(*spec.tensor_parallel,
                          *request.mutable_tensor_parallel());
  }
}

template <typename Request>
absl::Status MeshesFromProto(const Request& request, ConvertSpec& spec) {
  DCP_ASSIGN_OR_RETURN(spec.mesh, MeshFromProto(request.mesh(), "mesh"));
  DCP_ASSIGN_OR_RETURN(
      spec.other_meshes,
      NamedMeshesFromProto(request.other_meshes(), "other_meshes"));
  DCP_ASSIGN_OR_RETURN(spec.placements, PlacementRulesFromProto(
                                            request.placements(), *spec.mesh,
                                            spec.other_meshes, "placements"));
  if (!request.has_tensor_parallel()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(
      spec.tensor_parallel,
      TensorParallelFromProto(request.tensor_parallel(), "tensor_parallel"));
  return absl::OkStatus();
}

// Fields that mean nothing without a mesh.
absl::Status CheckNoMeshes(const v1::ConvertRequest& request) {
  if (request.other_meshes_size() != 0) {
    return Invalid("other_meshes", " require a mesh");
  }
  if (request.has_tensor_parallel()) {
    return Invalid("tensor_parallel", " requires a mesh");
  }
  if (request.placements_size() == 0) return absl::OkStatus();
  return Invalid("placements", " require a mesh");
}

template <typename Request>
void MetadataFromProto(const Request& request, ConvertSpec& spec) {
  spec.drop_non_tensors = request.drop_non_tensors();
  spec.drop_metadata = request.drop_metadata();
  spec.copy_config = !request.no_copy_config();
  for (const auto& [key, value] : request.metadata()) {
    spec.metadata.emplace_back(key, value);
  }
  // A map has no defined order.
  std::sort(spec.metadata.begin(), spec.metadata.end());
}

}  // namespace

template <typename Request>
void ConvertSpecToProto(const ConvertSpec& spec, Request& request) {
  request.mutable_destination()->set_overwrite(spec.overwrite);
  SelectionToProto(spec.selection, *request.mutable_selection());
  request.set_max_shard_bytes(spec.max_shard_bytes);
  request.set_drop_unreadable(spec.drop_unreadable);
  v1::JobOptions& options = *request.mutable_options();
  options.set_no_verify(!spec.verify);
  options.set_strict_cast(spec.strict_cast);
  options.set_check_padding(spec.check_padding);
  options.set_allow_losses(spec.allow_losses);
  if constexpr (HasFormat<Request>) {
    request.set_format(spec.to.has_value() ? FormatToProto(*spec.to)
                                           : v1::FORMAT_UNSPECIFIED);
  }
  if constexpr (HasDialect<Request>) {
    if (spec.to_dialect.has_value()) {
      request.set_to_dialect(std::string(DialectName(*spec.to_dialect)));
    }
  }
  if constexpr (HasMesh<Request>) MeshesToProto(spec, request);
  if constexpr (HasMetadata<Request>) {
    request.set_drop_non_tensors(spec.drop_non_tensors);
    request.set_drop_metadata(spec.drop_metadata);
    request.set_no_copy_config(!spec.copy_config);
    for (const auto& [key, value] : spec.metadata) {
      (*request.mutable_metadata())[key] = value;
    }
  }
}

template <typename Request>
absl::StatusOr<ConvertSpec> ConvertSpecFromProto(const Request& request) {
  ConvertSpec spec;
  spec.overwrite = request.destination().overwrite();
  DCP_ASSIGN_OR_RETURN(spec.selection,
                       SelectionFromProto(request.selection(), "selection"));
  spec.max_shard_bytes = request.max_shard_bytes();
  spec.drop_unreadable = request.drop_unreadable();
  spec.verify = !request.options().no_verify();
  spec.strict_cast = request.options().strict_cast();
  spec.check_padding = request.options().check_padding();
  spec.allow_losses = request.options().allow_losses();
  if constexpr (HasFormat<Request>) {
    DCP_ASSIGN_OR_RETURN(spec.to,
                         RequestedFormatFromProto(request.format(), "format"));
  } else {
    spec.to = Format::kDcp;
  }
  if constexpr (HasDialect<Request>) {
    if (!request.to_dialect().empty()) {
      const absl::StatusOr<Dialect> dialect =
          ParseDialect(request.to_dialect());
      if (!dialect.ok()) {
        return Invalid("to_dialect", ": ", dialect.status().message());
      }
      spec.to_dialect = *dialect;
    }
  }
  if constexpr (HasMetadata<Request>) MetadataFromProto(request, spec);
  if constexpr (!HasMesh<Request>) {
    spec.consolidate = true;
  } else if constexpr (HasFormat<Request>) {
    DCP_RETURN_IF_ERROR(request.has_mesh() ? MeshesFromProto(request, spec)
                                           : CheckNoMeshes(request));
  } else {
    DCP_RETURN_IF_ERROR(MeshesFromProto(request, spec));
  }
  return spec;
}

template void ConvertSpecToProto(const ConvertSpec&, v1::ConvertRequest&);
template void ConvertSpecToProto(const ConvertSpec&, v1::ReshardRequest&);
template void ConvertSpecToProto(const ConvertSpec&, v1::ConsolidateRequest&);
template absl::StatusOr<ConvertSpec> ConvertSpecFromProto(
    const v1::ConvertRequest&);
template absl::StatusOr<ConvertSpec> ConvertSpecFromProto(
    const v1::ReshardRequest&);
template absl::StatusOr<ConvertSpec> ConvertSpecFromProto(
    const v1::ConsolidateRequest&);

}  // namespace dcp
