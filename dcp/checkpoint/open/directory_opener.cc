// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/directory_opener.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/bytecheckpoint/bytecheckpoint_opener.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_opener.h"
#include "dcp/checkpoint/dialects/huggingface/accelerate_opener.h"
#include "dcp/checkpoint/dialects/huggingface/trainer_opener.h"
#include "dcp/checkpoint/dialects/megatron/megatron_files.h"
#include "dcp/checkpoint/dialects/megatron/megatron_opener.h"
#include "dcp/checkpoint/dialects/parts/directory_pointer.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/dialects/ranks/flat_dcp.h"
#include "dcp/checkpoint/dialects/ranks/rank_indices.h"
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"
#include "dcp/checkpoint/dialects/torchsnapshot/torchsnapshot_opener.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"
#include "dcp/checkpoint/open/no_checkpoint.h"

namespace dcp {
namespace {

// torch_checkpointing renames the directory at the end of a save.
constexpr absl::string_view kUnfinishedPrefix = "tmp_";

// An opener's result; nullopt without any sign of the dialect.
using MaybeParts = absl::StatusOr<std::optional<CheckpointParts>>;

MaybeParts TryOpenDcp(const SourceDirectory& directory,
                      const OpenOptions& options, const std::stop_token& stop) {
  if (directory.Has(kDcpMetadataName)) {
    DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                         OpenDcp(*directory.fs, directory.path,
                                 kDcpMetadataName, options, stop));
    if (!options.dialect.from.has_value()) {
      DCP_RETURN_IF_ERROR(CheckMegatronSaveFinished(directory.path, parts));
    }
    DCP_RETURN_IF_ERROR(
        Annotate(ResolveFlatParameters(*directory.fs, options, stop, parts),
                 directory.path));
    return parts;
  }
  const bool has_indices =
      std::any_of(directory.entries.begin(), directory.entries.end(),
                  [](const DirectoryEntry& entry) {
                    return ParseRankMetadataName(entry.name).has_value();
                  });
  if (!has_indices) return std::nullopt;
  return OpenRankIndices(*directory.fs, directory.path, options, stop);
}

// Opens a model in safetensors or .bin files.
MaybeParts TryOpenModel(const SourceDirectory& directory,
                        const OpenOptions& options,
                        const std::stop_token& stop) {
  if (!options.dialect.from.has_value()) {
    DCP_ASSIGN_OR_RETURN(const bool has_items, HasItemsIndex(directory, stop));
    if (has_items) return std::nullopt;
  }
  DCP_ASSIGN_OR_RETURN(
      const std::optional<ModelFiles> model,
      FindModelFiles(*directory.fs, directory.path, directory.entries, stop));
  if (!model.has_value()) return std::nullopt;
  return OpenModel(*directory.fs, *model, options, stop);
}

struct Opener {
  Dialect dialect;
  MaybeParts (*try_open)(const SourceDirectory&, const OpenOptions&,
                         const std::stop_token&);
};

// In the order in which they are tried: a directory may have signs of several,
// and the more particular ones come first.
constexpr Opener kOpeners[] = {
    {Dialect::kTorchSnapshot, &TryOpenTorchSnapshot},
    {Dialect::kMegatron, &TryOpenMegatron},
    {Dialect::kByteCheckpoint, &TryOpenByteCheckpoint},
    {Dialect::kDcp, &TryOpenDcp},
    // Before the Trainer, which keeps DeepSpeed's files in checkpoint-N.
    {Dialect::kDeepSpeed, &TryOpenDeepSpeed},
    // Before accelerate, because the Trainer keeps the same files.
    {Dialect::kTransformers, &TryOpenTrainer},
    // Before the ranks, because accelerate may write one file for each, too.
    {Dialect::kAccelerate, &TryOpenAccelerate},
    {Dialect::kRanks, &TryOpenRanks},
    // A model without training state.
    {Dialect::kSafetensors, &TryOpenModel},
    {Dialect::kTorch, &TryOpenModel},
};

// Reports problems with a checkpoint that was found in `directory`.
absl::Status CheckFound(const SourceDirectory& directory,
                        const OpenOptions& options, CheckpointParts& parts) {
  if (parts.dialect > Dialect::kTorch) {
    parts.properties.emplace(parts.properties.begin(), "dialect",
                             DialectName(parts.dialect));
  }
  if (parts.dialect == Dialect::kDeepSpeed) {
    for (const DirectoryEntry& entry : directory.entries) {
      if (!absl::EndsWith(entry.name, ".safetensors")) continue;
      parts.properties.emplace_back(
          "also here",
          absl::StrCat(entry.name, "; ", ToText({"from", "safetensors"}),
                       " reads the model of safetensors instead"));
      break;
    }
  }
  if (parts.dialect == Dialect::kRanks && !options.dialect.from.has_value() &&
      absl::StartsWith(BaseName(directory.path), kUnfinishedPrefix)) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory.path,
        ": torch_checkpointing uses this name until its save has finished; "
        "if the directory is complete, rename it"));
  }
  return absl::OkStatus();
}

// The checkpoint that the directory's names show; nullopt if they show none.
MaybeParts TryOpenListed(const SourceDirectory& directory,
                         const OpenOptions& options,
                         const std::stop_token& stop) {
  const std::optional<Dialect> from = options.dialect.from;
  for (const Opener& opener : kOpeners) {
    if (from.has_value() && opener.dialect != *from) continue;
    DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                         opener.try_open(directory, options, stop));
    if (!parts.has_value()) continue;
    DCP_RETURN_IF_ERROR(CheckFound(directory, options, *parts));
    return parts;
  }
  return std::nullopt;
}

// An error that explains why the directory is not a checkpoint.
absl::Status NoCheckpoint(const SourceDirectory& directory,
                          const OpenOptions& options,
                          const std::stop_token& stop) {
  if (!options.dialect.from.has_value()) {
    return WhyNoCheckpoint(directory, stop);
  }
  return absl::NotFoundError(absl::StrCat(
      directory.path, ": there is no checkpoint that can be read as ",
      DialectName(*options.dialect.from)));
}

// The checkpoint that the directory's names show, which must show one: pointers
// in it are not followed.
absl::StatusOr<CheckpointParts> OpenListed(const SourceDirectory& directory,
                                           const OpenOptions& options,
                                           const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                       TryOpenListed(directory, options, stop));
  if (parts.has_value()) return *std::move(parts);
  return NoCheckpoint(directory, options, stop);
}

// The checkpoint that the pointer names; nullopt without a pointer.
MaybeParts Follow(const SourceDirectory& directory,
                  const absl::StatusOr<std::optional<DirectoryPointer>>& found,
                  const OpenOptions& options, const std::stop_token& stop) {
  if (!found.ok()) return found.status();
  if (!found->has_value()) return std::nullopt;
  const DirectoryPointer& pointer = **found;
  const std::string path = directory.FullPath(pointer.target);
  const bool is_directory = directory.HasDirectory(pointer.target);
  SourceDirectory target;
  if (is_directory) {
    DCP_ASSIGN_OR_RETURN(target, ListDirectory(*directory.fs, path));
  }
  DCP_ASSIGN_OR_RETURN(
      CheckpointParts parts,
      is_directory
          ? OpenListed(target, options, stop)
          : OpenModel(*directory.fs, OneModelFile(path), options, stop));
  parts.properties.emplace_back(
      "followed", absl::StrCat(pointer.name, " to ", pointer.target));
  return parts;
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const SourceDirectory directory,
                       ListDirectory(fs, path));
  // Next to such a link, the files of several steps look like those of ranks.
  DCP_ASSIGN_OR_RETURN(
      std::optional<CheckpointParts> parts,
      Follow(directory, FindRankLink(directory), options, stop));
  if (parts.has_value()) return *std::move(parts);
  DCP_ASSIGN_OR_RETURN(parts, TryOpenListed(directory, options, stop));
  if (parts.has_value()) return *std::move(parts);
  DCP_ASSIGN_OR_RETURN(
      parts, Follow(directory, FindPointer(directory, stop), options, stop));
  if (parts.has_value()) return *std::move(parts);
  return NoCheckpoint(directory, options, stop);
}

}  // namespace dcp
