// SPDX-License-Identifier: Apache-2.0
// Prepares a conversion in this order: the source's index; the target; the
// selected entries; the destination's lock; the places of the entries' payload;
// the output files; memory and lanes; room on the disk.
#include "dcp/checkpoint/convert/prepare_conversion.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_side.h"
#include "dcp/base/limits.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/accelerate_layout.h"
#include "dcp/checkpoint/convert/convert_entries.h"
#include "dcp/checkpoint/convert/convert_output.h"
#include "dcp/checkpoint/convert/destination_place.h"
#include "dcp/checkpoint/convert/map_plan.h"
#include "dcp/checkpoint/convert/plan_id.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/lens/mean_weights.h"
#include "dcp/checkpoint/read/tie_check.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/io/lane.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// The maximum that the indexes of both sides take together, while that of the
// source is read or later.
uint64_t IndexMemory(const Checkpoint& source, const Output& output) {
  uint64_t num_chunks = 0;
  uint64_t num_parts = 0;
  for (const CheckpointEntry& entry : source.stored_entries()) {
    const TensorEntry* const tensor = entry.tensor();
    num_chunks += tensor != nullptr ? tensor->boxes.size() : 1;
    if (tensor != nullptr) num_parts += tensor->parts.size();
  }
  return num_parts * sizeof(ItemPart) +
         std::max(num_chunks * kIndexBytesPerChunkRead,
                  num_chunks * kIndexBytesPerChunk +
                      output.payloads.size() * kOutputBytesPerChunk);
}

// The part of the budget that is left for payload. A checkpoint's index takes
// memory too if it has very many chunks; up to kFreeIndexBytes are covered by
// the memory that a process may use in addition to the budget.
uint64_t PayloadMemory(uint64_t index_bytes, uint64_t least, uint64_t budget) {
  const uint64_t excess = index_bytes - std::min(index_bytes, kFreeIndexBytes);
  return std::max(least, budget - std::min(budget, excess));
}

// The blocks that suit both ends.
absl::StatusOr<OutputBlocks> BlocksFor(FileSystem& fs, absl::string_view src,
                                       const DestinationPath& dst,
                                       const Output& output) {
  DCP_ASSIGN_OR_RETURN(OutputBlocks blocks,
                       OutputBlocksFor(fs, dst.path(), output));
  blocks.block_bytes =
      std::max(blocks.block_bytes, fs.TraitsAt(src).block_bytes);
  return blocks;
}

void CompletePlan(Conversion& conversion, const ConvertOptions& options) {
  ConvertPlan& plan = conversion.plan;
  for (const OutputFile& file : conversion.output.files) {
    plan.files.push_back({file.layout.name(), file.layout.size()});
    plan.bytes_to_write += file.layout.size();
  }
  for (const Payload& payload : conversion.output.payloads) {
    plan.bytes_to_read += static_cast<uint64_t>(Volume(payload.box.sizes)) *
                          ElementSize(payload.stored->dtype);
  }
  const uint64_t block_bytes = conversion.blocks.block_bytes;
  const uint64_t least_of_lane = kMinBlocks * block_bytes;
  const uint64_t most_lanes =
      std::max<uint64_t>(options.memory_bytes / least_of_lane, 1);
  plan.num_lanes = static_cast<uint32_t>(std::min<uint64_t>(
      options.num_lanes != 0 ? options.num_lanes
                             : UsefulLanes(conversion.output),
      options.stream != nullptr ? 1 : most_lanes));
  plan.index_bytes = IndexMemory(*conversion.source, conversion.output);
  // More blocks than the output needs would be pinned for nothing.
  const uint64_t useful =
      AlignUp(2 * plan.bytes_to_write, block_bytes) + 2 * least_of_lane;
  const uint64_t least = plan.num_lanes * least_of_lane;
  plan.memory_bytes =
      std::min(PayloadMemory(plan.index_bytes, least, options.memory_bytes),
               std::max(least, useful));
  // Nor more than a lane can have in flight.
  plan.memory_bytes = std::min(
      plan.memory_bytes,
      plan.num_lanes * block_bytes *
          NumLaneBlocks(plan.num_lanes,
                        LaneMemoryFor(conversion.output,
                                      std::numeric_limits<uint64_t>::max(),
                                      block_bytes)));
}

// Sets the bytes that would really be read; the check cannot be used
// afterwards.
absl::Status PlanReads(const ConvertOptions& options, Conversion& conversion) {
  ConvertPlan& plan = conversion.plan;
  std::optional<RuleReads> reads;
  if (plan.map.has_value()) {
    DCP_ASSIGN_OR_RETURN(reads, RuleReads::Make(*conversion.source->mapped(),
                                                conversion.source->files()));
  }
  DCP_ASSIGN_OR_RETURN(plan.bytes_to_read,
                       PlanTransfer(conversion.output,
                                    {.direct = options.direct,
                                     .num_lanes = plan.num_lanes,
                                     .memory_bytes = plan.memory_bytes,
                                     .blocks = conversion.blocks,
                                     .stop = options.stop,
                                     .check = conversion.check.get()},
                                    [&reads](const PlannedRead& read) {
                                      if (reads.has_value()) reads->Add(read);
                                    }));
  if (reads.has_value()) reads->SetRatios(*plan.map);
  if (conversion.check != nullptr) {
    plan.bytes_to_read +=
        conversion.check->BytesToFinish(SourceCheck::Missing::kLittle);
  }
  return absl::OkStatus();
}

absl::Status OpenSource(FileSystem& fs, absl::string_view src,
                        const ConvertOptions& options, Conversion& conversion) {
  OpenOptions open = options.open;
  open.check_index = options.verify;
  open.locate_memory_bytes = options.memory_bytes;
  absl::StatusOr<std::unique_ptr<Checkpoint>> source =
      Checkpoint::Open(fs, src, open, options.stop);
  if (!source.ok()) return WithSide(source.status(), ErrorSide::kSource);
  conversion.source = *std::move(source);
  if (options.verify) {
    DCP_RETURN_IF_ERROR(
        WithSide(conversion.source->CheckRecordedIndex(), ErrorSide::kSource));
  }
  conversion.plan.from = conversion.source->format();
  return absl::OkStatus();
}

// FailedPrecondition if the destination would lack something that the source
// has, and the options do not allow that.
absl::Status CheckLosses(const Checkpoint& source,
                         const ConvertOptions& options, ConvertPlan& plan) {
  const std::vector<SourceLoss> losses =
      LossesAbout(source.losses(), options.selection.parts);
  plan.warnings = LossTexts(losses);
  // From DCP to DCP everything stays as it is.
  const bool is_copy =
      source.dialect() == Dialect::kDcp && plan.to == Format::kDcp;
  if (options.allow_losses || is_copy) return absl::OkStatus();
  for (const SourceLoss& loss : losses) {
    if (!loss.needs_consent) continue;
    return WithSide(
        WithOptions(
            OptionError(absl::StatusCode::kFailedPrecondition, source.path(),
                        ": ", loss.text, "; ", OptionName{"allow_losses"},
                        " converts it all the same"),
            NamedOptions(loss.text)),
        ErrorSide::kSource);
  }
  return absl::OkStatus();
}

// The files next to a model that neither belong to it nor are copied. Other
// files next to a training state are expected.
std::vector<std::string> NotCopied(const Conversion& conversion) {
  const Checkpoint& source = *conversion.source;
  std::vector<std::string> names = conversion.companions.others;
  if (source.dialect() != Dialect::kSafetensors &&
      source.dialect() != Dialect::kTorch) {
    return {};
  }
  std::erase_if(names, [&source](const std::string& name) {
    const std::vector<std::string>& own = source.files().names();
    return IsWeightIndexName(name) ||
           std::find(own.begin(), own.end(), name) != own.end();
  });
  return names;
}

// Finds the files to be copied. The others go into the plan.
absl::Status FindCompanions(FileSystem& fs, absl::string_view src,
                            const ConvertOptions& options,
                            Conversion& conversion) {
  absl::StatusOr<CompanionFiles> companions =
      options.assets.empty() ? FindCompanionFiles(fs, src)
                             : CompanionFilesIn(fs, options.assets);
  if (!companions.ok()) {
    return WithSide(companions.status(), ErrorSide::kSource);
  }
  conversion.companions = *std::move(companions);
  conversion.plan.code_left_out = conversion.companions.code;
  conversion.plan.not_copied = NotCopied(conversion);
  // The files next to the model may be in folders.
  if (conversion.companions.has_folders()) {
    conversion.target.kind = Destination::Kind::kFolders;
  }
  return absl::OkStatus();
}

absl::Status FindDestination(FileSystem& fs, const DestinationPath& dst,
                             const OwnFiles& own, const ConvertOptions& options,
                             bool only_looks, Conversion& conversion) {
  const Destination::Kind kind = conversion.target.kind;
  absl::StatusOr<std::unique_ptr<Destination>> destination =
      only_looks ? LookAtDestination(fs, dst, kind, options.overwrite, own)
                 : PlanDestination(fs, dst, kind, options.overwrite, own,
                                   options.writer);
  if (!destination.ok()) {
    return WithSide(destination.status(), ErrorSide::kDestination);
  }
  conversion.destination = *std::move(destination);
  return absl::OkStatus();
}

// How a conversion is prepared.
struct Preparation {
  const OwnFiles* before = nullptr;
  bool only_looks = false;
  uint64_t piece_bytes = 0;  // for a share, otherwise 0
};

// Everything up to the lock of the destination.
absl::Status FindBothSides(FileSystem& fs, absl::string_view src,
                           const DestinationPath& dst,
                           const ConvertOptions& options,
                           const Preparation& how, Conversion& conversion) {
  const OwnFiles* const before = how.before;
  DCP_RETURN_IF_ERROR(OpenSource(fs, src, options, conversion));
  const Checkpoint& source = *conversion.source;
  ConvertPlan& plan = conversion.plan;
  DCP_ASSIGN_OR_RETURN(conversion.target,
                       ChooseTarget(fs, dst, plan.from, options));
  plan.to = conversion.target.format;
  if (options.stream == nullptr) {
    DCP_RETURN_IF_ERROR(WithSide(
        CheckPlace(fs, dst, conversion.target.kind, source, options.stop),
        ErrorSide::kDestination));
  }
  DCP_RETURN_IF_ERROR(CheckLosses(source, options, plan));
  plan.dropped_metadata = DroppedMetadata(source, plan.to, options);
  if (source.mapped() != nullptr) {
    if (how.piece_bytes != 0 && !source.mapped()->are_made_in_parts()) {
      return absl::InvalidArgumentError(
          "workers cannot share a conversion that decodes or encodes blocks, "
          "or merges an adapter; let one process do that");
    }
    for (std::string& text :
         RepeatedInMean(MeanTerms(src, *options.open.map))) {
      plan.warnings.push_back(std::move(text));
    }
    plan.map = PlanMap(*options.open.map, source.mapped()->report);
  }
  DCP_ASSIGN_OR_RETURN(
      conversion.selected,
      Select(source.entries(), options.selection, options.stop));
  conversion.own.id = before != nullptr ? before->id : NewSaveId();
  conversion.own.made_directory = before != nullptr && before->made_directory;
  OwnFiles own;
  if (options.journal != nullptr) own = before ? *before : conversion.own;
  if (conversion.target.kind == Destination::Kind::kDirectory &&
      options.copy_config) {
    DCP_RETURN_IF_ERROR(FindCompanions(fs, src, options, conversion));
    if (conversion.companions.files != nullptr) {
      own.companions = conversion.companions.files->names();
    }
  }
  if (options.stream != nullptr || how.piece_bytes != 0) {
    return absl::OkStatus();
  }
  return FindDestination(fs, dst, own, options, how.only_looks, conversion);
}

// Lays out the files. A share's file names have the plan's id, so the plan is
// first made without it.
absl::Status BuildOutput(FileSystem& fs, const DestinationPath& dst,
                         std::vector<OutputEntry> entries,
                         const ConvertOptions& options, uint64_t piece_bytes,
                         Conversion& conversion) {
  const bool for_share = piece_bytes != 0;
  const bool twice =
      for_share && conversion.target.kind == Destination::Kind::kDcpDirectory;
  if (for_share) conversion.own.id.clear();
  const auto build = [&](std::vector<OutputEntry> values) -> absl::Status {
    DCP_ASSIGN_OR_RETURN(
        conversion.output,
        BuildConvertOutput({.fs = fs,
                            .source = *conversion.source,
                            .companions = conversion.companions,
                            .destination = conversion.destination.get(),
                            .target = conversion.target,
                            .dst = dst,
                            .save_id = conversion.own.id,
                            .dropped_config = conversion.plan.dropped_config},
                           std::move(values), options));
    return absl::OkStatus();
  };
  if (twice) {
    DCP_RETURN_IF_ERROR(build(entries));
    conversion.own.id = PlanId(conversion, options, piece_bytes);
    return build(std::move(entries));
  }
  DCP_RETURN_IF_ERROR(build(std::move(entries)));
  if (for_share) conversion.own.id = PlanId(conversion, options, piece_bytes);
  return absl::OkStatus();
}

// With a share, a worker later looks into the items of the tensors that it
// moves, and no others. But object values belong to the plan, and so do sizes
// and times of the needed files, so each worker opens them all. And the places
// of the payload tell which tensors in a .pt file share a storage.
absl::Status LocateForPlan(Checkpoint& source, Format to,
                           absl::Span<const uint32_t> wanted,
                           const std::stop_token& stop) {
  if (to == Format::kTorch) return source.Locate(wanted, stop);
  std::vector<uint32_t> tensors;
  std::vector<uint32_t> objects;
  for (const uint32_t i : wanted) {
    const bool is_tensor = source.entries()[i].tensor() != nullptr;
    (is_tensor ? tensors : objects).push_back(i);
  }
  absl::btree_set<uint32_t> needed;
  for (const EntryChunk& chunk : source.StoredChunks(tensors)) {
    const TensorEntry& stored = *source.stored_entries()[chunk.entry].tensor();
    needed.insert(stored.locations[chunk.chunk].item.file);
  }
  const std::vector<uint32_t> files(needed.begin(), needed.end());
  source.files().OpenAhead(files);
  for (const uint32_t file : files) {
    DCP_RETURN_IF_ERROR(source.files().Get(file).status());
  }
  return source.Locate(objects, stop);
}

absl::StatusOr<Conversion> Prepare(FileSystem& fs, absl::string_view src,
                                   const DestinationPath& dst,
                                   const ConvertOptions& options,
                                   const Preparation& how) {
  Conversion conversion;
  DCP_RETURN_IF_ERROR(FindBothSides(fs, src, dst, options, how, conversion));
  Checkpoint& source = *conversion.source;
  ConvertPlan& plan = conversion.plan;
  const std::vector<uint32_t> wanted =
      EntriesToLocate(source, conversion.selected, plan.to);
  DCP_RETURN_IF_ERROR(
      WithSide(how.piece_bytes != 0
                   ? LocateForPlan(source, plan.to, wanted, options.stop)
                   : source.Locate(wanted, options.stop),
               ErrorSide::kSource));
  // A worker compares the parts for the pieces of a share, later.
  if (!how.only_looks && how.piece_bytes == 0) {
    DCP_RETURN_IF_ERROR(CheckTies(fs, source,
                                  {.memory_bytes = options.memory_bytes,
                                   .stop = options.stop,
                                   .checks_padding = options.check_padding}));
  }
  if (options.verify && how.piece_bytes == 0) {
    DCP_ASSIGN_OR_RETURN(conversion.check,
                         SourceCheck::Make(fs, source, wanted));
  }
  DCP_ASSIGN_OR_RETURN(
      std::vector<OutputEntry> entries,
      ConvertEntries(source, conversion.selected, options, plan));
  if (conversion.target.dialect == Dialect::kAccelerate) {
    DCP_RETURN_IF_ERROR(NameForAccelerate(options, entries, plan));
  }
  DCP_RETURN_IF_ERROR(BuildOutput(fs, dst, std::move(entries), options,
                                  how.piece_bytes, conversion));
  conversion.num_beyond.resize(conversion.output.payloads.size());
  DCP_ASSIGN_OR_RETURN(conversion.blocks,
                       BlocksFor(fs, src, dst, conversion.output));
  CompletePlan(conversion, options);
  if (options.admit != nullptr) DCP_RETURN_IF_ERROR(options.admit(plan));
  if (how.only_looks) DCP_RETURN_IF_ERROR(PlanReads(options, conversion));
  // A run that resumes has some of its files already.
  if (how.before == nullptr && conversion.destination != nullptr) {
    DCP_RETURN_IF_ERROR(
        WithSide(conversion.destination->CheckSpace(plan.bytes_to_write),
                 ErrorSide::kDestination));
  }
  return conversion;
}

}  // namespace

absl::StatusOr<Conversion> PrepareConversion(FileSystem& fs,
                                             absl::string_view src,
                                             const DestinationPath& dst,
                                             const ConvertOptions& options,
                                             const OwnFiles* before) {
  return Prepare(fs, src, dst, options, {.before = before});
}

absl::StatusOr<Conversion> PrepareShare(FileSystem& fs, absl::string_view src,
                                        const DestinationPath& dst,
                                        const ConvertOptions& options,
                                        uint64_t piece_bytes) {
  return Prepare(fs, src, dst, options, {.piece_bytes = piece_bytes});
}

absl::StatusOr<ConvertPlan> PlanConversion(FileSystem& fs,
                                           absl::string_view src,
                                           const DestinationPath& dst,
                                           const ConvertOptions& options) {
  DCP_ASSIGN_OR_RETURN(Conversion conversion,
                       Prepare(fs, src, dst, options, {.only_looks = true}));
  return std::move(conversion.plan);
}

}  // namespace dcp
