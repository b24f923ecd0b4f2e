// SPDX-License-Identifier: Apache-2.0

#include "client/checkpoint_url.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace dcp::client {
namespace {

constexpr absl::string_view kScheme = "tessera://";
constexpr absl::string_view kUnix = "unix:";

// Looks for the last colon that is not part of an IPv6 address, "[::1]".
bool HasPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  return colon != absl::string_view::npos && colon > 0 &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) &&
         port <= UINT16_MAX;
}

// The whole name of a checkpoint in an object store follows the server's
// address.
std::string PathOnServer(absl::string_view path) {
  const size_t mark = path.find("://");
  if (mark == absl::string_view::npos || mark < 2) return std::string(path);
  const absl::string_view scheme = path.substr(1, mark - 1);
  const bool in_store =
      std::all_of(scheme.begin(), scheme.end(), absl::ascii_isalnum);
  return std::string(in_store ? path.substr(1) : path);
}

}  // namespace

bool IsCheckpointUrl(absl::string_view text) {
  return absl::StartsWith(text, kScheme);
}

absl::StatusOr<CheckpointUrl> ParseCheckpointUrl(absl::string_view text) {
  const auto malformed = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': ", what,
        "; expected a URL such as tessera://host:7420/srv/step-12"));
  };
  if (!IsCheckpointUrl(text)) return malformed("is not the URL of a daemon");
  const absl::string_view rest = text.substr(kScheme.size());
  const bool is_unix = absl::StartsWith(rest, kUnix);
  size_t slash = rest.find('/');
  if (is_unix) {
    const size_t colon = rest.find(':', kUnix.size());
    if (colon == absl::string_view::npos || colon == kUnix.size()) {
      return malformed(
          "a colon must separate the socket from the checkpoint's path, as in "
          "tessera://unix:/run/dcp-server.sock:/srv/step-12");
    }
    slash = colon + 1;
    if (slash == rest.size() || rest[slash] != '/') {
      return malformed("the checkpoint's path on the server must begin with /");
    }
  }
  if (slash == absl::string_view::npos || slash + 1 == rest.size()) {
    return malformed("the checkpoint's path on the server is missing");
  }
  // Without the colon after a socket.
  const absl::string_view address = rest.substr(0, is_unix ? slash - 1 : slash);
  if (!is_unix && !address.empty() && !HasPort(address)) {
    return malformed("the server's port is missing");
  }
  return CheckpointUrl{.address = std::string(address),
                       .path = PathOnServer(rest.substr(slash))};
}

}  // namespace dcp::client
