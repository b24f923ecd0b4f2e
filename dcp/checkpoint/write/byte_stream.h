// SPDX-License-Identifier: Apache-2.0
// ByteStream: receives bytes that are written once and in order, such as a
// pipe.
#ifndef DCP_CHECKPOINT_WRITE_BYTE_STREAM_H_
#define DCP_CHECKPOINT_WRITE_BYTE_STREAM_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "dcp/base/bytes.h"

namespace dcp {

// Takes the next bytes, which are valid during the call. May block.
using ByteStream = absl::AnyInvocable<absl::Status(ByteSpan bytes)>;

}  // namespace dcp

#endif  // DCP_CHECKPOINT_WRITE_BYTE_STREAM_H_
