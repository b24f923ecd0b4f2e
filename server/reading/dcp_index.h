// SPDX-License-Identifier: Apache-2.0
// The index of a checkpoint in any format, in the form that DCP writes;
// GetMetadata answers with it. Pure; any thread.
#ifndef SERVER_READING_DCP_INDEX_H_
#define SERVER_READING_DCP_INDEX_H_

#include <cstdint>
#include <string>

#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp::server {

// The bytes of a `.metadata` file. Files and offsets are those of the
// checkpoint. In a format other than DCP they point to the bare payload, not to
// a DCP item.
std::string EncodeDcpIndex(const Checkpoint& checkpoint);

// An upper estimate of the memory that EncodeDcpIndex needs, including the
// result.
uint64_t DcpIndexBytes(const Checkpoint& checkpoint);

}  // namespace dcp::server

#endif  // SERVER_READING_DCP_INDEX_H_
