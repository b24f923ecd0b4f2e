// SPDX-License-Identifier: Apache-2.0
// The error for a call when the file system has not answered in time:
// Unavailable with the root, the path and a retry-after. Pure; any thread.
#ifndef SERVER_ACCESS_DISK_TIMEOUT_H_
#define SERVER_ACCESS_DISK_TIMEOUT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/access/access.h"

namespace dcp::server {

// `path` is either the client's path or one without symbolic links.
absl::Status DiskTimeoutError(const Client& client, absl::string_view path,
                              absl::Duration timeout);

}  // namespace dcp::server

#endif  // SERVER_ACCESS_DISK_TIMEOUT_H_
