// SPDX-License-Identifier: Apache-2.0
// The API's enums that correspond to enums in dcp, each in one table. Pure; any
// thread.
#ifndef PROTO_MESSAGES_ENUM_MESSAGES_H_
#define PROTO_MESSAGES_ENUM_MESSAGES_H_

#include <optional>

#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp {

tessera::v1::Format FormatToProto(Format format);
// Absent for an unspecified or unknown value, as in the next.
std::optional<Format> FormatFromProto(tessera::v1::Format format);

tessera::v1::DiffFinding::Kind DiffKindToProto(DiffFinding::Kind kind);
std::optional<DiffFinding::Kind> DiffKindFromProto(
    tessera::v1::DiffFinding::Kind kind);

}  // namespace dcp

#endif  // PROTO_MESSAGES_ENUM_MESSAGES_H_
