// SPDX-License-Identifier: Apache-2.0
// Opens the checkpoint that a load reads, wherever it is, and refuses paths
// that only loads know. For the thread that trains.
#ifndef FSDP_CHECKPOINT_SOURCE_OPEN_SOURCE_H_
#define FSDP_CHECKPOINT_SOURCE_OPEN_SOURCE_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/client_options.h"
#include "dcp/checkpoint/mapped/map_request.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

// As the members of TorchLoadOptions with the same names.
struct SourceOptions {
  std::stop_token stop = {};
  dcp::FileSystem* file_system = nullptr;
  bool verify = false;
  std::optional<dcp::MapRequest> map = std::nullopt;
  dcp::client::ClientOptions daemon = {};
};

// A DaemonSource if `path` begins with tessera://, else a LocalSource. Reads
// the checkpoint's index, but no payload. With a mapping, the rule file and the
// config.json that options.map names are read here; without a config.json, the
// reader of the checkpoint looks for one in it and next to it.
absl::StatusOr<std::unique_ptr<CheckpointSource>> OpenSource(
    const std::string& path, const SourceOptions& options);

// InvalidArgument, with advice, if `path` is on a daemon, because `what` ("a
// save") works on this machine's files.
absl::Status RefuseDaemon(absl::string_view path, absl::string_view what);

// The same for a path with a suffix that names one file, because a save would
// make a directory.
absl::Status RefuseFile(absl::string_view path);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_OPEN_SOURCE_H_
