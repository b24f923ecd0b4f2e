// SPDX-License-Identifier: Apache-2.0

#include "server/access/disk_timeout.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "proto/rpc_status.h"

namespace dcp::server {
namespace {

// A mount that hangs may respond again after a while.
constexpr int64_t kRetryAfterDiskMs = 30'000;

}  // namespace

absl::Status DiskTimeoutError(const Client& client, absl::string_view path,
                              absl::Duration timeout) {
  const Root* const root = client.FindRoot(path);
  const std::string where =
      root == nullptr ? "" : absl::StrCat(" of root ", root->path);
  return WithRetryAfter(
      WithPlace(absl::UnavailableError(absl::StrCat(
                    path, ": the file system", where, " has not answered for ",
                    absl::FormatDuration(timeout),
                    ": check that it is mounted and that the server runs")),
                {.path = std::string(path)}),
      kRetryAfterDiskMs);
}

}  // namespace dcp::server
