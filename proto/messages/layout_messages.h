// SPDX-License-Identifier: Apache-2.0
// Boxes, meshes and placements as messages and back. Client input is hostile:
// every field is checked, and an InvalidArgument begins with the field's name
// ("mesh.axes[1].size is 0: ..."). `field` is the message's path. Pure; any
// thread.
#ifndef PROTO_MESSAGES_LAYOUT_MESSAGES_H_
#define PROTO_MESSAGES_LAYOUT_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/placement.h"
#include "google/protobuf/repeated_field.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp {

// A box without dimensions if it has neither offsets nor sizes. The caller
// checks whether it lies within a tensor.
absl::StatusOr<Box> BoxFromProto(const tessera::v1::Box& box,
                                 absl::string_view field);

// The mesh has at least one axis.
absl::StatusOr<Mesh> MeshFromProto(const tessera::v1::Mesh& mesh,
                                   absl::string_view field);
// One index for each axis, inside the mesh.
absl::StatusOr<Dims> CoordinateFromProto(
    const google::protobuf::RepeatedField<int64_t>& coordinate,
    const Mesh& mesh, absl::string_view field);
absl::StatusOr<Placement> PlacementFromProto(
    const tessera::v1::Placement& placement, absl::string_view field);
// Each rule is for `mesh` or one of `others`.
absl::StatusOr<std::vector<PlacementRule>> PlacementRulesFromProto(
    const google::protobuf::RepeatedPtrField<tessera::v1::PlacementRule>& rules,
    const Mesh& mesh, absl::Span<const NamedMesh> others,
    absl::string_view field);
// Numbers of ranks are not compared.
absl::StatusOr<std::vector<NamedMesh>> NamedMeshesFromProto(
    const google::protobuf::RepeatedPtrField<tessera::v1::NamedMesh>& meshes,
    absl::string_view field);
absl::StatusOr<TensorParallel> TensorParallelFromProto(
    const tessera::v1::TensorParallel& parallel, absl::string_view field);

void BoxToProto(const Box& box, tessera::v1::Box& proto);
void MeshToProto(const Mesh& mesh, tessera::v1::Mesh& proto);
void PlacementToProto(const Placement& placement,
                      tessera::v1::Placement& proto);
void PlacementRuleToProto(const PlacementRule& rule,
                          tessera::v1::PlacementRule& proto);
void NamedMeshToProto(const NamedMesh& mesh, tessera::v1::NamedMesh& proto);
// Sends only the entries that decide about parameters, not activation layouts.
void TensorParallelToProto(const TensorParallel& parallel,
                           tessera::v1::TensorParallel& proto);

}  // namespace dcp

#endif  // PROTO_MESSAGES_LAYOUT_MESSAGES_H_
