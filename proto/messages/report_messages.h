// SPDX-License-Identifier: Apache-2.0
// The reports of verify, diff and conversions as messages and back. Messages
// are bounded: long lists are cut, and their counts are whole. Server input is
// untrusted: DataLoss for contents that no server has. Pure; any thread.
#ifndef PROTO_MESSAGES_REPORT_MESSAGES_H_
#define PROTO_MESSAGES_REPORT_MESSAGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "google/protobuf/repeated_field.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp {

// The format that a server's answer names; DataLoss for an unknown one.
absl::StatusOr<Format> AnsweredFormatFromProto(tessera::v1::Format format);

// A checkpoint's losses, up to the API's limit.
void WarningsToProto(absl::Span<const std::string> warnings,
                     google::protobuf::RepeatedPtrField<std::string>& list);

void VerifyReportToProto(const VerifyReport& report,
                         tessera::v1::VerifyReport& proto);
// Problems that the message does not list become one finding that counts them.
absl::StatusOr<VerifyReport> VerifyReportFromProto(
    const tessera::v1::VerifyReport& proto);

void DiffReportToProto(const DiffReport& report,
                       tessera::v1::DiffReport& proto);
absl::StatusOr<DiffReport> DiffReportFromProto(
    const tessera::v1::DiffReport& proto);

// Sets everything except `elapsed`.
void ConvertPlanToProto(const ConvertPlan& plan,
                        tessera::v1::ConvertResult& proto);
absl::StatusOr<ConvertPlan> ConvertPlanFromProto(
    const tessera::v1::ConvertResult& proto);

}  // namespace dcp

#endif  // PROTO_MESSAGES_REPORT_MESSAGES_H_
