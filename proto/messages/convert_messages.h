// SPDX-License-Identifier: Apache-2.0
// ConvertSpec as the requests that ask for a conversion, and back. Client input
// is hostile: every field is checked, and an InvalidArgument begins with the
// field's name. `Request` is ConvertRequest, ReshardRequest or
// ConsolidateRequest. Pure; any thread.
#ifndef PROTO_MESSAGES_CONVERT_MESSAGES_H_
#define PROTO_MESSAGES_CONVERT_MESSAGES_H_

#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_options.h"

namespace dcp {

// All but the source and destination paths. Settings that the request cannot
// express are left out.
template <typename Request>
void ConvertSpecToProto(const ConvertSpec& spec, Request& request);

// All but `open`, which depends on the client's rights.
template <typename Request>
absl::StatusOr<ConvertSpec> ConvertSpecFromProto(const Request& request);

}  // namespace dcp

#endif  // PROTO_MESSAGES_CONVERT_MESSAGES_H_
