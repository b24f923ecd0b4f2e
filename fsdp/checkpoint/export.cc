// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/export.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/convert.h"
#include "fsdp/checkpoint/ranks/process_group_coordinator.h"
#include "fsdp/checkpoint/source/default_file_system.h"
#include "fsdp/checkpoint/source/open_source.h"

namespace fsdp {
namespace {

// A prefix becomes a glob and a pattern, in which other characters are special.
absl::StatusOr<dcp::SelectionOptions> SelectBelow(const std::string& prefix) {
  if (prefix.empty()) return dcp::SelectionOptions();
  const bool is_plain =
      std::all_of(prefix.begin(), prefix.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
      });
  if (!is_plain) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefix '", prefix,
                     "' may contain only letters, digits, '_', '-' and '.'"));
  }
  dcp::SelectionOptions selection;
  selection.include = {absl::StrCat(prefix, ".*")};
  selection.renames = {absl::StrCat(
      "s/^", absl::StrReplaceAll(prefix, {{".", "\\."}}), "\\.//")};
  return selection;
}

absl::Status Consolidate(const std::string& checkpoint, const std::string& path,
                         const ExportOptions& options) {
  dcp::ConvertOptions convert;
  DCP_ASSIGN_OR_RETURN(convert.selection, SelectBelow(options.prefix));
  if (options.dtype.has_value()) {
    convert.selection.casts = {std::string(dcp::TorchName(*options.dtype))};
  }
  convert.consolidate = true;
  convert.overwrite = options.overwrite;
  convert.memory_bytes = options.memory_bytes;
  convert.stop = options.stop;
  return dcp::ConvertCheckpoint(FileSystemOr(options.file_system), checkpoint,
                                path, std::move(convert))
      .status();
}

}  // namespace

absl::Status export_full(const std::string& checkpoint, const std::string& path,
                         const ExportOptions& options) {
  DCP_RETURN_IF_ERROR(RefuseDaemon(checkpoint, "an export"));
  DCP_RETURN_IF_ERROR(RefuseDaemon(path, "an export"));
  DCP_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProcessGroupCoordinator> coordinator,
      ProcessGroupCoordinator::ForTraining(options.process_group));
  const absl::Status written = coordinator->rank() == 0
                                   ? Consolidate(checkpoint, path, options)
                                   : absl::OkStatus();
  return dcp::Agree(*coordinator, dcp::Annotate(written, "export to ", path));
}

}  // namespace fsdp
