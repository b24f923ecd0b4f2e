// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/open_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/checkpoint_url.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/io/file_system.h"
#include "fsdp/checkpoint/source/daemon_source.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/local_source.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<CheckpointSource>> OpenSource(
    const std::string& path, const SourceOptions& options) {
  if (dcp::client::IsCheckpointUrl(path)) {
    std::optional<dcp::MapSpec> map;
    if (options.map.has_value()) {
      DCP_ASSIGN_OR_RETURN(
          map, dcp::ReadMap(FileSystemOr(options.file_system), *options.map));
    }
    return DaemonSource::Open(path, options.daemon, map, options.stop);
  }
  return LocalSource::Open(options.file_system, path, options.verify,
                           options.map);
}

absl::Status RefuseDaemon(absl::string_view path, absl::string_view what) {
  if (!dcp::client::IsCheckpointUrl(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what,
                   " works on files that this machine sees, not on a daemon's; "
                   "only load and load_from_rank0 read from a daemon"));
}

absl::Status RefuseFile(absl::string_view path) {
  if (!dcp::NamesStateFile(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      " names one file, but async_save makes a directory, which all ranks "
      "write: call save for the file, or save to a directory and call "
      "export_full(directory, \"",
      dcp::BaseName(path), "\")"));
}

}  // namespace fsdp
