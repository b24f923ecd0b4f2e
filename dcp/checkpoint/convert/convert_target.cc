// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_target.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/mesh_layout.h"
#include "dcp/format/safetensors/safetensors.h"

namespace dcp {
namespace {

Format ChooseFormat(const DestinationPath& dst, Format from,
                    const ConvertOptions& options) {
  if (options.to_dialect.has_value()) return Format::kDcp;
  if (options.to.has_value()) return *options.to;
  if (options.stream != nullptr) return Format::kSafetensors;
  if (options.mesh.has_value()) return Format::kDcp;
  return dst.format().value_or(from == Format::kTorch ? Format::kDcp : from);
}

Destination::Kind ChooseKind(const DestinationPath& dst, Format to,
                             const ConvertOptions& options) {
  if (options.to_dialect.has_value()) return Destination::Kind::kFolders;
  if (to == Format::kDcp) return Destination::Kind::kDcpDirectory;
  if (to == Format::kTorch || options.stream != nullptr) {
    return Destination::Kind::kFile;
  }
  return dst.format() == Format::kSafetensors ? Destination::Kind::kFile
                                              : Destination::Kind::kDirectory;
}

// Refuses a directory with the name that another kind of file would have.
absl::Status CheckSuffix(FileSystem& fs, const DestinationPath& dst,
                         const ConvertOptions& options) {
  if (options.to.has_value() || options.to_dialect.has_value() ||
      options.mesh.has_value()) {
    return absl::OkStatus();
  }
  const absl::string_view suffix = dst.suffix();
  if (suffix.empty() || suffix == FormatName(Format::kDcp) ||
      suffix == FormatName(Format::kSafetensors) || dst.format().has_value()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<FileInfo> info = fs.Stat(dst.path());
  if (info.ok() && info->kind != FileKind::kFile) return absl::OkStatus();
  return OptionError(
      absl::StatusCode::kInvalidArgument, dst.text(), " ends in .", suffix,
      ", which is not the suffix of a format; names of files end in ",
      kFileSuffixes, ", names of directories have no suffix; with ",
      OptionName{"to"}, ", any name is accepted");
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
    return absl::InvalidArgumentError(absl::StrCat(
        "the metadata key '", key,
        "' is reserved for digests of the tensors; choose another key"));
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

absl::Status CheckOptions(const DestinationPath& dst,
                          const ConvertTarget& target,
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
        "a maximum shard size requires a directory as destination, but ",
        dst.text(), " is one file"));
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
                                           const DestinationPath& dst,
                                           Format from,
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
