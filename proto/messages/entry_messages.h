// SPDX-License-Identifier: Apache-2.0
// A checkpoint's entries as messages and back. Pure; any thread.
#ifndef PROTO_MESSAGES_ENTRY_MESSAGES_H_
#define PROTO_MESSAGES_ENTRY_MESSAGES_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "tessera/v1/checkpoint.pb.h"

namespace dcp {

// `file_names` are the checkpoint's; if they are empty, chunks are left out.
// `entry` must be a tensor for TensorToProto and an object for ObjectToProto.
void TensorToProto(const CheckpointEntry& entry,
                   absl::Span<const std::string> file_names,
                   tessera::v1::Tensor& proto);
// Without the text, this reads nothing that Checkpoint::Locate writes.
void ObjectToProto(const CheckpointEntry& entry, bool with_text,
                   tessera::v1::Object& proto);

// From a server's answer: DataLoss if no tensor can look like that.
// `file_number` returns a file's number for its name.
absl::StatusOr<TensorEntry> TensorFromProto(
    const tessera::v1::Tensor& proto,
    absl::FunctionRef<uint32_t(const std::string& name)> file_number);

}  // namespace dcp

#endif  // PROTO_MESSAGES_ENTRY_MESSAGES_H_
