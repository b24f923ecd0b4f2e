// Tested by tests/dcp/checkpoint/open/checkpoint_test.cc.
#include "dcp/checkpoint/open/dialects/directory_opener.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/dialects/bytecheckpoint/bytecheckpoint_opener.h"
#include "dcp/checkpoint/open/dialects/deepspeed/deepspeed_opener.h"
#include "dcp/checkpoint/open/dialects/huggingface/accelerate_opener.h"
#include "dcp/checkpoint/open/dialects/huggingface/trainer_opener.h"
#include "dcp/checkpoint/open/dialects/ranks/flat_dcp.h"
#include "dcp/checkpoint/open/dialects/ranks/ranks_opener.h"
#include "dcp/checkpoint/open/dialects/source_directory.h"
#include "dcp/checkpoint/open/dialects/torchsnapshot/torchsnapshot_opener.h"
#include "dcp/checkpoint/open/model_files.h"
#include "dcp/checkpoint/open/model_opener.h"

namespace dcp {
namespace {

// What an opener found; nullopt if there is no sign of its dialect.
using MaybeParts = absl::StatusOr<std::optional<CheckpointParts>>;

MaybeParts TryOpenDcp(const SourceDirectory& directory,
                      const OpenOptions& options, const std::stop_token& stop) {
  if (directory.Has(kDcpMetadataName)) {
    DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                         OpenDcp(*directory.fs, directory.path,
                                 kDcpMetadataName, options, stop));
    DCP_RETURN_IF_ERROR(
        Annotate(ResolveFlatParameters(*directory.fs, options, stop, parts),
                 directory.path));
    return parts;
  }
  for (const int64_t rank : {int64_t{0}, options.rank}) {
    if (rank < 0 || !directory.Has(RankMetadataName(rank))) continue;
    return OpenRankLocalDcp(*directory.fs, directory.path, options, stop);
  }
  return std::nullopt;
}

// A model of safetensors or .bin files.
MaybeParts TryOpenModel(const SourceDirectory& directory,
                        const OpenOptions& options,
                        const std::stop_token& stop) {
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
    {Dialect::kByteCheckpoint, &TryOpenByteCheckpoint},
    {Dialect::kDcp, &TryOpenDcp},
    // Before the Trainer, which keeps DeepSpeed's files in its checkpoint-N.
    {Dialect::kDeepSpeed, &TryOpenDeepSpeed},
    // Before accelerate, whose files the Trainer keeps in the same way.
    {Dialect::kTransformers, &TryOpenTrainer},
    // Before the ranks, because accelerate may write one file for each, too.
    {Dialect::kAccelerate, &TryOpenAccelerate},
    {Dialect::kRanks, &TryOpenRanks},
    // A model without training state.
    {Dialect::kSafetensors, &TryOpenModel},
    {Dialect::kTorch, &TryOpenModel},
};

// Why nothing was found.
absl::Status NoCheckpoint(const SourceDirectory& directory) {
  for (const DirectoryEntry& entry : directory.entries) {
    if (absl::StartsWith(entry.name, absl::StrCat(kDcpMetadataName, ".")) &&
        absl::EndsWith(entry.name, ".tmp")) {
      return absl::NotFoundError(
          absl::StrCat(directory.path, ": the save did not finish: there is ",
                       entry.name, " but no .metadata"));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      directory.path,
      ": not a checkpoint: the directory has neither .metadata (which a save "
      "writes last) nor .safetensors or .bin files of a model"));
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const SourceDirectory directory,
                       ListDirectory(fs, path));
  const std::optional<Dialect> from = options.dialect.from;
  for (const Opener& opener : kOpeners) {
    if (from.has_value() && opener.dialect != *from) continue;
    DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                         opener.try_open(directory, options, stop));
    if (!parts.has_value()) continue;
    if (parts->dialect > Dialect::kTorch) {
      parts->properties.emplace(parts->properties.begin(), "dialect",
                                DialectName(parts->dialect));
    }
    return *std::move(parts);
  }
  if (from.has_value()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": there is no checkpoint that can be read as ",
                     DialectName(*from)));
  }
  return NoCheckpoint(directory);
}

}  // namespace dcp
