// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_target.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/mesh_layout.h"
#include "dcp/format/safetensors/safetensors.h"

namespace dcp {
namespace {

Format ChooseFormat(absl::string_view dst, Format from,
                    const ConvertOptions& options) {
  if (options.to_dialect.has_value()) return Format::kDcp;
  if (options.to.has_value()) return *options.to;
  if (options.stream != nullptr) return Format::kSafetensors;
  if (options.mesh.has_value()) return Format::kDcp;
  return FormatFromSuffix(dst).value_or(from == Format::kTorch ? Format::kDcp
                                                               : from);
}

Destination::Kind ChooseKind(absl::string_view dst, Format to,
                             const ConvertOptions& options) {
  if (options.to_dialect.has_value()) return Destination::Kind::kFolders;
  if (to == Format::kDcp) return Destination::Kind::kDcpDirectory;
  if (to == Format::kTorch || options.stream != nullptr) {
    return Destination::Kind::kFile;
  }
  return FormatFromSuffix(dst) == Format::kSafetensors
             ? Destination::Kind::kFile
             : Destination::Kind::kDirectory;
}

// The suffix of a file name, such as "gguf"; empty for directory names, such as
// "llama-3.1-8b", "run.5" or "model.v2".
absl::string_view FileSuffix(absl::string_view path) {
  const absl::string_view name = BaseName(path);
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos || dot == 0) return "";
  const absl::string_view suffix = name.substr(dot + 1);
  const bool is_plain =
      std::all_of(suffix.begin(), suffix.end(), absl::ascii_isalnum);
  if (!is_plain || suffix.empty() || !absl::ascii_isalpha(suffix[0])) return "";
  const bool is_version =
      suffix[0] == 'v' && suffix.size() > 1 &&
      std::all_of(suffix.begin() + 1, suffix.end(), absl::ascii_isdigit);
  return is_version ? "" : suffix;
}

// Refuses a directory with the name that another kind of file would have.
absl::Status CheckSuffix(FileSystem& fs, absl::string_view dst,
                         const ConvertOptions& options) {
  if (options.to.has_value() || options.to_dialect.has_value() ||
      options.mesh.has_value()) {
    return absl::OkStatus();
  }
  const absl::string_view suffix = FileSuffix(dst);
  if (suffix.empty() || suffix == FormatName(Format::kDcp) ||
      suffix == FormatName(Format::kSafetensors) ||
      FormatFromSuffix(dst).has_value()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<FileInfo> info = fs.Stat(dst);
  if (info.ok() && info->kind != FileKind::kFile) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dst, " ends in .", suffix,
      ", which is not the suffix of a format; names of files end in ",
      kFileSuffixes,
      ", names of directories have no suffix; with the option to, any name is "
      "accepted"));
}

absl::Status CheckMesh(Format to, const ConvertOptions& options) {
  if (to != Format::kDcp &&
      (options.mesh.has_value() || !options.placements.empty() ||
       options.tensor_parallel.has_value())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mesh and placements require dcp output; ",
                     FormatName(to), " holds whole tensors"));
  }
  return CheckMeshes(options);
}

absl::Status CheckMetadata(Format to, const ConvertOptions& options) {
  if (to != Format::kSafetensors && !options.metadata.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata requires safetensors output; ", FormatName(to),
                     " has no place for '", options.metadata[0].first, "'"));
  }
  for (const auto& [key, value] : options.metadata) {
    if (key != kSafetensorsDigestsKey) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the metadata key '", key,
                     "' is reserved for digests of the tensors; choose "
                     "another key"));
  }
  return absl::OkStatus();
}

absl::Status CheckDialect(const ConvertOptions& options) {
  if (!options.to_dialect.has_value()) return absl::OkStatus();
  if (*options.to_dialect != Dialect::kAccelerate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a checkpoint can be read as ", DialectName(*options.to_dialect),
        ", but not written so; accelerate can be written"));
  }
  if (options.to.has_value() && *options.to != Format::kDcp) {
    return absl::InvalidArgumentError(absl::StrCat(
        "accelerate's checkpoints are dcp, not ", FormatName(*options.to)));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(absl::string_view dst, const ConvertTarget& target,
                          const ConvertOptions& options) {
  DCP_RETURN_IF_ERROR(CheckDialect(options));
  DCP_RETURN_IF_ERROR(CheckMesh(target.format, options));
  if (target.format == Format::kDcp && options.stream != nullptr) {
    return absl::InvalidArgumentError(
        "DCP is a directory of files and cannot be written as a stream; "
        "safetensors and pt can");
  }
  if (options.max_shard_bytes != 0 && target.kind == Destination::Kind::kFile) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a maximum shard size requires a directory as destination, but ", dst,
        " is one file"));
  }
  DCP_RETURN_IF_ERROR(CheckMetadata(target.format, options));
  if (options.memory_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a memory budget of ", options.memory_bytes,
                     " bytes is below the minimum, ", kMinMemoryBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConvertTarget> ChooseTarget(FileSystem& fs,
                                           absl::string_view dst, Format from,
                                           const ConvertOptions& options) {
  DCP_RETURN_IF_ERROR(CheckSuffix(fs, dst, options));
  ConvertTarget target;
  target.format = ChooseFormat(dst, from, options);
  target.kind = ChooseKind(dst, target.format, options);
  target.dialect = options.to_dialect;
  DCP_RETURN_IF_ERROR(CheckOptions(dst, target, options));
  return target;
}

}  // namespace dcp
