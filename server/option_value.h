// Values of options as people write them: sizes, times, counts, and words that
// were probably meant. InvalidArgument says what would be right; the caller
// names the option. Pure; any thread.
#ifndef SERVER_OPTION_VALUE_H_
#define SERVER_OPTION_VALUE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace dcp::server {

// Bytes of "512MiB", "2GiB", "4096": B, KiB, MiB, GiB, TiB, with or without
// "iB", and KB, MB, GB, TB of thousands. No fractions.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// "30s", "10 min", "2h", "7d". No fractions.
absl::StatusOr<absl::Duration> ParseTime(absl::string_view text);

// At least `min` and at most `max`.
absl::StatusOr<int64_t> ParseCount(absl::string_view text, int64_t min,
                                   int64_t max);

// "true", "yes", "on", "1" or "false", "no", "off", "0".
absl::StatusOr<bool> ParseBool(absl::string_view text);

// "host:port", "[v6]:port" or "unix:/path", checked as far as that goes
// without asking the network. `unix` says whether the last is allowed.
absl::StatusOr<std::string> ParseAddress(absl::string_view text, bool unix);

// Whether only this machine can reach the address: a unix socket, 127.x.x.x,
// ::1 or localhost.
bool IsLoopback(absl::string_view address);

// "512 MiB", "2 GiB", "4097 B"; "30 s", "10 min", "7 d": what parses again.
std::string FormatBytes(uint64_t bytes);
std::string FormatTime(absl::Duration duration);

}  // namespace dcp::server

#endif  // SERVER_OPTION_VALUE_H_
