// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/megatron_files.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/json/json.h"

namespace dcp {
namespace {

constexpr absl::string_view kConfigFile = "metadata.json";
constexpr absl::string_view kLegacyFile = "model_optim_rng.pt";
// Other programs may have a file with this name and any size.
constexpr uint64_t kMaxMegatronConfigBytes = 64 << 10;
constexpr uint64_t kBackendVersion = 1;

constexpr absl::string_view kConversion =
    "; Megatron-LM converts it with --ckpt-convert-format torch_dist "
    "--ckpt-convert-save DIRECTORY";

// The facts in metadata.json.
struct Config {
  std::string backend;
  uint64_t version = kBackendVersion;
};

// nullopt if the text is not Megatron-core's.
std::optional<Config> ParseConfig(absl::string_view text) {
  Config config;
  std::string key;
  const absl::Status status = ParseJson(text, [&](const JsonEvent& event) {
    if (event.depth != 1) return absl::OkStatus();
    if (event.kind == JsonEvent::Kind::kKey) key = std::string(event.text);
    if (event.kind == JsonEvent::Kind::kString && key == "sharded_backend") {
      config.backend = std::string(event.text);
    }
    if (event.kind == JsonEvent::Kind::kUnsigned &&
        key == "sharded_backend_version") {
      config.version = event.number;
    }
    return absl::OkStatus();
  });
  if (!status.ok() || config.backend.empty()) return std::nullopt;
  return config;
}

absl::StatusOr<std::optional<Config>> ReadConfig(
    const SourceDirectory& directory, const std::stop_token& stop) {
  if (!directory.HasFile(kConfigFile)) return std::nullopt;
  const absl::StatusOr<std::string> text =
      ReadText(directory, kConfigFile, kMaxMegatronConfigBytes, stop);
  if (absl::IsResourceExhausted(text.status())) return std::nullopt;
  if (!text.ok() && !IsAboutBytes(text.status())) return text.status();
  if (!text.ok()) return std::nullopt;
  return ParseConfig(*text);
}

absl::Status CheckConfig(const SourceDirectory& directory,
                         const Config& config) {
  const std::string path = directory.FullPath(kConfigFile);
  if (config.backend != "torch_dist") {
    return absl::UnimplementedError(absl::StrCat(
        path, ": the sharded backend '", config.backend.substr(0, 100),
        "' of Megatron-core is not supported; expected torch_dist",
        config.backend == "zarr" ? kConversion : ""));
  }
  if (config.version != kBackendVersion) {
    return absl::UnimplementedError(
        absl::StrCat(path, ": version ", config.version,
                     " of the backend torch_dist is not supported; expected ",
                     kBackendVersion));
  }
  if (!directory.HasFile(kDcpMetadataName)) {
    return absl::NotFoundError(
        absl::StrCat(directory.path, ": there is ", kConfigFile, " but no ",
                     kDcpMetadataName, ": the checkpoint is incomplete"));
  }
  return absl::OkStatus();
}

absl::Status Unfinished(absl::string_view path) {
  return OptionError(absl::StatusCode::kNotFound, path,
                     ": the save did not finish: Megatron-core writes ",
                     kConfigFile, " last, and it is missing; ",
                     OptionName{"from"},
                     ", megatron or dcp, reads what is there");
}

// Refuses the format that has a file for each tensor- and pipeline-parallel
// rank.
absl::Status CheckNotLegacy(const SourceDirectory& directory) {
  const auto is_rank = [](const DirectoryEntry& entry) {
    return entry.kind == FileKind::kDirectory &&
           absl::StartsWith(entry.name, "mp_rank_");
  };
  const auto rank =
      std::find_if(directory.entries.begin(), directory.entries.end(), is_rank);
  if (rank == directory.entries.end()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const std::optional<SourceDirectory> child,
                       OpenChildDirectory(directory, rank->name));
  if (!child.has_value() || !child->HasFile(kLegacyFile)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      directory.path, ": ", rank->name, "/", kLegacyFile,
      ": in the format 'torch' of Megatron-LM, how tensors are cut between ",
      std::count_if(directory.entries.begin(), directory.entries.end(),
                    is_rank),
      " ranks is not recorded; each file can be read alone as pt",
      kConversion));
}

}  // namespace

absl::StatusOr<bool> IsMegatronDirectory(const SourceDirectory& directory,
                                         const OpenOptions& options,
                                         const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const std::optional<Config> config,
                       ReadConfig(directory, stop));
  if (config.has_value()) {
    DCP_RETURN_IF_ERROR(CheckConfig(directory, *config));
    return true;
  }
  if (!directory.HasFile(kDcpMetadataName)) {
    DCP_RETURN_IF_ERROR(CheckNotLegacy(directory));
    return false;
  }
  if (options.dialect.from == Dialect::kMegatron) return true;
  if (directory.HasFile(kCommonFile)) return Unfinished(directory.path);
  return false;
}

absl::Status CheckMegatronSaveFinished(absl::string_view path,
                                       const CheckpointParts& parts) {
  for (const CheckpointEntry& entry : parts.entries) {
    if (entry.object() != nullptr && entry.fqn == kCommonEntry) {
      return Unfinished(path);
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
