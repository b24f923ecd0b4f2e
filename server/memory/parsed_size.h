// SPDX-License-Identifier: Apache-2.0
// ParsedSize: how much memory a message of protobuf takes once it is parsed,
// estimated from the wire bytes without parsing. Two bytes on the wire may
// become a hundred in memory: an empty message in a list. Pure.
#ifndef SERVER_MEMORY_PARSED_SIZE_H_
#define SERVER_MEMORY_PARSED_SIZE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace dcp::server {

// An upper bound, in bytes, for `wire` as a message of `type`, without the
// message object itself. If `wire` is malformed, the bound is for the part
// before the mistake. Stops as soon as the bound is more than `most`, and
// returns that.
uint64_t ParsedSize(const google::protobuf::Descriptor& type,
                    absl::string_view wire, uint64_t most = UINT64_MAX);

}  // namespace dcp::server

#endif  // SERVER_MEMORY_PARSED_SIZE_H_
