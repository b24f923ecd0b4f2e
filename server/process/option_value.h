// SPDX-License-Identifier: Apache-2.0
// Parses option values as people write them: sizes, times, counts and booleans.
// InvalidArgument lists the accepted forms; the caller adds the option's name.
// Pure; any thread.
#ifndef SERVER_PROCESS_OPTION_VALUE_H_
#define SERVER_PROCESS_OPTION_VALUE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace dcp::server {

// Bytes: "512MiB", "2GiB", "4096". Units are B; KiB, MiB, GiB and TiB, of which
// "iB" may be left out; KB, MB, GB and TB, which are powers of 1000. No
// fractions.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// "30s", "10 min", "2h", "7d". No fractions.
absl::StatusOr<absl::Duration> ParseTime(absl::string_view text);

// At least `min` and at most `max`.
absl::StatusOr<int64_t> ParseCount(absl::string_view text, int64_t min,
                                   int64_t max);

// "true", "yes", "on", "1" or "false", "no", "off", "0".
absl::StatusOr<bool> ParseBool(absl::string_view text);

// "host:port", "[v6]:port" or "unix:/path", checked as far as possible without
// the network. `unix`: the last form is allowed.
absl::StatusOr<std::string> ParseAddress(absl::string_view text, bool unix);

// Whether only this machine can reach the address: a unix socket, 127.x.x.x,
// ::1 or localhost.
bool IsLoopback(absl::string_view address);

// "512 MiB", "2 GiB", "4097 B"; "30 s", "10 min", "7 d". ParseBytes and
// ParseTime accept these.
std::string FormatBytes(uint64_t bytes);
std::string FormatTime(absl::Duration duration);

}  // namespace dcp::server

#endif  // SERVER_PROCESS_OPTION_VALUE_H_
