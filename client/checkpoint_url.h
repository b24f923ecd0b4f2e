// SPDX-License-Identifier: Apache-2.0
// CheckpointUrl: the name of a checkpoint on a daemon, accepted wherever a path
// is. Pure; any thread.
#ifndef CLIENT_CHECKPOINT_URL_H_
#define CLIENT_CHECKPOINT_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp::client {

struct CheckpointUrl {
  // "host:7420" or "unix:/socket"; empty where the URL has none.
  std::string address;
  std::string path;  // the server's, "/srv/run/step-12" or "s3://bucket/run"
};

// Whether `text` begins with "tessera://".
bool IsCheckpointUrl(absl::string_view text);

// Accepts "tessera://host:7420/srv/run/step-12", "tessera://[::1]:7420/..", for
// a daemon on the same machine "tessera://unix:/run/dcp-server.sock:/srv/.."
// (without a colon in the socket's path), and, if the address is known from
// elsewhere, "tessera:///srv/..". After the address there may be a name in an
// object store that the daemon serves,
// "tessera://host:7420/s3://bucket/run/step-12". The path is taken literally,
// without escapes. Returns InvalidArgument with the reason for other
// texts.
absl::StatusOr<CheckpointUrl> ParseCheckpointUrl(absl::string_view text);

}  // namespace dcp::client

#endif  // CLIENT_CHECKPOINT_URL_H_
