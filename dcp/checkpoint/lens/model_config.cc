// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/model_config.h"

#include <memory>
#include <utility>

#include "dcp/base/status.h"
#include "dcp/checkpoint/files/hub_folder.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/mapping/language/mapping_limits.h"

namespace dcp {
namespace {

constexpr absl::string_view kConfigName = "config.json";

// Whether `status` means that a file does not exist, or that this program may
// not read it. A path below a file, or a path to something that is not a file,
// is InvalidArgument.
bool IsAbsent(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

std::vector<std::string> ModelConfigPlaces(absl::string_view source) {
  return {JoinPath(source, kConfigName),
          JoinPath(ParentDirectory(source), kConfigName)};
}

absl::StatusOr<std::string> FindModelConfig(FileSystem& fs,
                                            absl::string_view source) {
  DCP_ASSIGN_OR_RETURN(const std::string path, ResolveHubFolder(fs, source));
  for (const std::string& place : ModelConfigPlaces(path)) {
    absl::StatusOr<std::string> text =
        ReadFile(fs, place, kMaxModelConfigBytes, /*follow_symlinks=*/true);
    if (text.ok() || !IsAbsent(text.status())) return text;
  }
  return std::string();
}

absl::Status AddModelConfig(FileSystem& fs, absl::string_view source,
                            OpenOptions& options) {
  if (options.map == nullptr || !options.map->options.config.empty()) {
    return absl::OkStatus();
  }
  MapSpec spec = *options.map;
  DCP_ASSIGN_OR_RETURN(spec.options.config, FindModelConfig(fs, source));
  options.map = std::make_shared<const MapSpec>(std::move(spec));
  return absl::OkStatus();
}

}  // namespace dcp
