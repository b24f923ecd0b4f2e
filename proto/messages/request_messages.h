// SPDX-License-Identifier: Apache-2.0
// The parts of requests that name checkpoints and select from them, as messages
// and back. Client input is hostile: every field is checked, and an
// InvalidArgument begins with the field's name. `field` is the message's path,
// such as "source_a". Pure; any thread.
#ifndef PROTO_MESSAGES_REQUEST_MESSAGES_H_
#define PROTO_MESSAGES_REQUEST_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/element.h"
#include "google/protobuf/message_lite.h"
#include "google/protobuf/repeated_field.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp {

struct SourceSpec {
  std::string path;  // as it was sent; not checked against anyone's rights
  OpenOptions open;  // without `map`
  // Has passed CheckMap; null if none is asked for. All copies of this object
  // share it; immutable.
  std::shared_ptr<const tessera::v1::MapSpec> map = nullptr;
  std::string field = "source";  // in the request
};
absl::StatusOr<SourceSpec> SourceFromProto(const tessera::v1::Source& source,
                                           absl::string_view field);
// InvalidArgument if there is a mapping: a description of a checkpoint's files
// cannot name tensors that the files do not hold.
absl::Status CheckUnmapped(const tessera::v1::Source& source,
                           absl::string_view field);
// Only the rank, the dialect and the mapping are sent; a negative rank is left
// out.
void SourceToProto(const std::string& path, const OpenOptions& open,
                   tessera::v1::Source& proto);

// Serializes a message so that equal messages have equal bytes. Without this, a
// map's entries have no defined order.
std::string StableBytes(const google::protobuf::MessageLite& message);

// Absent if the format is unspecified.
absl::StatusOr<std::optional<Format>> RequestedFormatFromProto(
    tessera::v1::Format format, absl::string_view field);

absl::StatusOr<SelectionOptions> SelectionFromProto(
    const tessera::v1::Selection& selection, absl::string_view field);
void SelectionToProto(const SelectionOptions& selection,
                      tessera::v1::Selection& proto);

absl::StatusOr<Tolerance> ToleranceFromProto(
    const tessera::v1::DiffRequest::Tolerance& tolerance,
    absl::string_view field);
void ToleranceToProto(const Tolerance& tolerance,
                      tessera::v1::DiffRequest::Tolerance& proto);

// A list of globs.
absl::StatusOr<std::vector<std::string>> GlobsFromProto(
    const google::protobuf::RepeatedPtrField<std::string>& globs,
    absl::string_view field);

// 0 means 100.
absl::StatusOr<double> SamplePercentFromProto(double percent,
                                              absl::string_view field);

}  // namespace dcp

#endif  // PROTO_MESSAGES_REQUEST_MESSAGES_H_
