// The index of a checkpoint of any format as DCP writes it: what GetMetadata
// answers. Pure; any thread.
#ifndef SERVER_DCP_INDEX_H_
#define SERVER_DCP_INDEX_H_

#include <cstdint>
#include <string>

#include "dcp/checkpoint/checkpoint.h"

namespace dcp::server {

// The bytes of a `.metadata`. Files and offsets are those of the checkpoint;
// in a format other than DCP there is a bare payload, not an item.
std::string DcpIndexOf(const Checkpoint& checkpoint);

// Memory that DcpIndexOf takes, with its answer; an estimate from above.
uint64_t DcpIndexBytes(const Checkpoint& checkpoint);

}  // namespace dcp::server

#endif  // SERVER_DCP_INDEX_H_
