// Converts between the API's messages and the types of dcp. What comes from a
// client is hostile: every field is checked, and an InvalidArgument begins with
// the name of the field ("mesh.axes[1].size is 0: ..."), which FieldOf extracts
// for programs. Pure; any thread.
#ifndef SERVER_MESSAGES_H_
#define SERVER_MESSAGES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/selection.h"
#include "dcp/checkpoint/verify.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/element.h"
#include "dcp/tensor/placement.h"
#include "google/protobuf/repeated_field.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {

// --- From requests. `field` is the path of the message, e.g. "source_a".

struct SourceSpec {
  std::string path;  // as it was sent; to be checked with Client::CheckRead
  OpenOptions open;
};
absl::StatusOr<SourceSpec> SourceFromProto(const tessera::v1::Source& source,
                                           absl::string_view field);

// Absent if the format is unspecified.
absl::StatusOr<std::optional<Format>> FormatFromProto(
    tessera::v1::Format format, absl::string_view field);

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
absl::StatusOr<std::vector<PlacementRule>> PlacementRulesFromProto(
    const google::protobuf::RepeatedPtrField<tessera::v1::PlacementRule>& rules,
    const Mesh& mesh, absl::string_view field);

absl::StatusOr<SelectionOptions> SelectionFromProto(
    const tessera::v1::Selection& selection, absl::string_view field);
absl::StatusOr<Tolerance> ToleranceFromProto(
    const tessera::v1::DiffRequest::Tolerance& tolerance,
    absl::string_view field);
// A list of globs.
absl::StatusOr<std::vector<std::string>> GlobsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& globs,
    absl::string_view field);

// 0 means 100.
absl::StatusOr<double> SamplePercentFromProto(double percent,
                                              absl::string_view field);

// --- To answers.

tessera::v1::Format FormatToProto(Format format);
void BoxToProto(const Box& box, tessera::v1::Box& proto);
void MeshToProto(const Mesh& mesh, tessera::v1::Mesh& proto);
void PlacementToProto(const Placement& placement,
                      tessera::v1::Placement& proto);

// `file_names` are those of the checkpoint; if they are empty, chunks are left
// out. `entry` must be a tensor for TensorToProto and an object for
// ObjectToProto.
void TensorToProto(const CheckpointEntry& entry,
                   absl::Span<const std::string> file_names,
                   tessera::v1::Tensor& proto);
// Without the text, this reads nothing that Checkpoint::Locate writes.
void ObjectToProto(const CheckpointEntry& entry, bool with_text,
                   tessera::v1::Object& proto);

void VerifyReportToProto(const VerifyReport& report,
                         tessera::v1::VerifyReport& proto);
void DiffReportToProto(const DiffReport& report,
                       tessera::v1::DiffReport& proto);
// Sets everything except `elapsed`.
void ConvertPlanToProto(const ConvertPlan& plan,
                        tessera::v1::ConvertResult& proto);

}  // namespace dcp::server

#endif  // SERVER_MESSAGES_H_
