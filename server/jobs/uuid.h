// SPDX-License-Identifier: Apache-2.0
// UUIDs as text: 36 characters, hexadecimal in groups of 8-4-4-4-12, of any
// version and of either case (RFC 9562). Pure; any thread.
#ifndef SERVER_JOBS_UUID_H_
#define SERVER_JOBS_UUID_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace dcp::server {

inline constexpr size_t kUuidBytes = 36;

bool IsUuid(absl::string_view text);

// All zeros: probably a client that forgot to generate one.
bool IsNilUuid(absl::string_view text);

}  // namespace dcp::server

#endif  // SERVER_JOBS_UUID_H_
