// SPDX-License-Identifier: Apache-2.0
// The dialects of a program that reads all of them: a new dialect is added
// here.
// Tested by tests/dcp/checkpoint/open/directory_opener_test.cc.

#include <optional>
#include <stop_token>

#include "absl/types/span.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/bytecheckpoint/bytecheckpoint_opener.h"
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_opener.h"
#include "dcp/checkpoint/dialects/formats/format_openers.h"
#include "dcp/checkpoint/dialects/huggingface/accelerate_opener.h"
#include "dcp/checkpoint/dialects/huggingface/trainer_opener.h"
#include "dcp/checkpoint/dialects/megatron/megatron_files.h"
#include "dcp/checkpoint/dialects/megatron/megatron_opener.h"
#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/dialects/ranks/flat_dcp.h"
#include "dcp/checkpoint/dialects/ranks/rank_indices.h"
#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"
#include "dcp/checkpoint/dialects/torchsnapshot/torchsnapshot_opener.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {
namespace {

// Opens a DCP directory with one index, in which FSDP1 may have saved flat
// parameters, or with an index for each rank.
MaybeParts TryOpenDcpOfPrograms(const SourceDirectory& directory,
                                const OpenOptions& options,
                                const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(std::optional<CheckpointParts> parts,
                       TryOpenDcp(directory, options, stop));
  if (!parts.has_value()) return TryOpenRankIndices(directory, options, stop);
  if (!options.dialect.from.has_value()) {
    DCP_RETURN_IF_ERROR(CheckMegatronSaveFinished(directory.path, *parts));
  }
  DCP_RETURN_IF_ERROR(
      Annotate(ResolveFlatParameters(*directory.fs, options, stop, *parts),
               directory.path));
  return parts;
}

constexpr DialectOpener kOpeners[] = {
    {Dialect::kTorchSnapshot, &TryOpenTorchSnapshot, &CheckSnapshotFinished},
    {Dialect::kMegatron, &TryOpenMegatron},
    {Dialect::kByteCheckpoint, &TryOpenByteCheckpoint},
    {Dialect::kDcp, &TryOpenDcpOfPrograms},
    // Before the Trainer, which keeps DeepSpeed's files in checkpoint-N.
    {Dialect::kDeepSpeed, &TryOpenDeepSpeed},
    // Before accelerate, because the Trainer keeps the same files.
    {Dialect::kTransformers, &TryOpenTrainer},
    // Before the ranks, because accelerate may write one file for each, too.
    {Dialect::kAccelerate, &TryOpenAccelerate},
    {Dialect::kRanks, &TryOpenRanks, &CheckNoItemsIndex},
    // A model without training state.
    {Dialect::kSafetensors, &TryOpenModel},
    {Dialect::kTorch, &TryOpenModel},
};

}  // namespace

absl::Span<const DialectOpener> DialectOpeners() { return kOpeners; }

}  // namespace dcp
