#include "dcp/checkpoint/convert/convert.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/convert_journal.h"
#include "dcp/checkpoint/convert/torch_rewrite.h"
#include "dcp/checkpoint/open/glob_set.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/companion_files.h"
#include "dcp/checkpoint/write/dcp_output.h"
#include "dcp/checkpoint/write/destination.h"
#include "dcp/checkpoint/write/image_stream.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/checkpoint/write/output.h"
#include "dcp/checkpoint/write/safetensors_output.h"
#include "dcp/checkpoint/write/save_id.h"
#include "dcp/checkpoint/write/torch_output.h"
#include "dcp/format/inert_value.h"
#include "dcp/format/safetensors.h"
#include "dcp/io/lane.h"

namespace dcp {
namespace {

// The maximum number of names in a message.
constexpr size_t kMaxNamesShown = 5;

bool HasTorchExtension(absl::string_view path) {
  return absl::EndsWith(path, ".pt") || absl::EndsWith(path, ".pth") ||
         absl::EndsWith(path, ".bin") || absl::EndsWith(path, ".ckpt");
}

Format TargetFormat(absl::string_view dst, Format from,
                    const ConvertOptions& options) {
  if (options.to.has_value()) return *options.to;
  if (options.stream != nullptr) return Format::kSafetensors;
  if (options.mesh.has_value()) return Format::kDcp;
  if (absl::EndsWith(dst, ".safetensors")) return Format::kSafetensors;
  if (HasTorchExtension(dst)) return Format::kTorch;
  return from == Format::kTorch ? Format::kDcp : from;
}

// The suffix of a file's name, such as "gguf"; empty for names that directories
// have, such as "llama-3.1-8b", "run.5" or "model.v2".
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

// Refuses to use the name of another kind of file for a directory.
absl::Status CheckSuffix(FileSystem& fs, absl::string_view dst,
                         const ConvertOptions& options) {
  if (options.to.has_value() || options.mesh.has_value()) {
    return absl::OkStatus();
  }
  const absl::string_view suffix = FileSuffix(dst);
  if (suffix.empty() || suffix == FormatName(Format::kDcp) ||
      suffix == FormatName(Format::kSafetensors) || HasTorchExtension(dst)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<FileInfo> info = fs.Stat(dst);
  if (info.ok() && info->kind != FileKind::kFile) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dst, " ends in .", suffix,
      ", which is not a format that is written; names of files end in "
      ".safetensors, .pt, .pth, .bin or .ckpt, and those of directories in no "
      "suffix; --to FORMAT takes any name"));
}

Destination::Kind TargetKind(absl::string_view dst, Format to,
                             const ConvertOptions& options) {
  if (to == Format::kDcp) return Destination::Kind::kDcpDirectory;
  if (to == Format::kTorch || options.stream != nullptr) {
    return Destination::Kind::kFile;
  }
  return absl::EndsWith(dst, ".safetensors") ? Destination::Kind::kFile
                                             : Destination::Kind::kDirectory;
}

absl::Status CheckOptions(absl::string_view dst, Format to,
                          const ConvertOptions& options) {
  if (to != Format::kDcp &&
      (options.mesh.has_value() || !options.placements.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mesh and placements are for dcp output; ",
                     FormatName(to), " holds whole tensors"));
  }
  if (!options.placements.empty() && !options.mesh.has_value()) {
    return absl::InvalidArgumentError("placements need a mesh");
  }
  for (const PlacementRule& rule : options.placements) {
    if (rule.placements.size() != options.mesh->axes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement '", rule.glob, "=", ToString(rule.placements),
                       "' has ", rule.placements.size(), " placements for the ",
                       options.mesh->axes.size(), " axes of the mesh"));
    }
  }
  if (to == Format::kDcp && options.stream != nullptr) {
    return absl::InvalidArgumentError(
        "DCP is a directory of files and cannot be written as a stream; "
        "safetensors and pt can");
  }
  if (options.max_shard_bytes != 0 &&
      TargetKind(dst, to, options) == Destination::Kind::kFile) {
    return absl::InvalidArgumentError(
        absl::StrCat("a maximum shard size needs a directory as destination, ",
                     dst, " is one file"));
  }
  if (to != Format::kSafetensors && !options.metadata.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata are for safetensors output; ", FormatName(to),
                     " has no place for '", options.metadata[0].first, "'"));
  }
  for (const auto& [key, value] : options.metadata) {
    if (key != kSafetensorsDigestsKey) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("metadata '", key,
                     "' is where digests of the tensors are kept; choose "
                     "another key"));
  }
  if (options.memory_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a memory budget of ", options.memory_bytes,
                     " bytes is below the least, ", kMinMemoryBytes));
  }
  return absl::OkStatus();
}

// Everything that is known before payload moves.
struct Job {
  std::unique_ptr<Checkpoint> source;
  CompanionFiles companions;  // the source's, to be copied
  std::unique_ptr<Destination> destination;
  Output output;
  std::unique_ptr<SourceCheck> check;  // optional
  // Elements that casts found beyond the range, by payload; includes those of
  // the files that an earlier run has written.
  std::vector<uint64_t> num_beyond;
  ConvertPlan plan;
  JournaledRun run;  // for the journal; without one only its id is set
};

// Nobody needs an output without tensors, except perhaps one of objects alone,
// if the format holds them.
absl::StatusOr<std::vector<OutputEntry>> CheckNotEmpty(
    std::vector<OutputEntry> entries, bool tensors_only,
    const Checkpoint& source, const ConvertPlan& plan) {
  if (plan.num_tensors > 0 || (plan.num_objects > 0 && !tensors_only)) {
    return entries;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "nothing would be written: none of the ", source.entries().size(),
      " entries of the source is selected and a tensor"));
}

// Why the destination cannot hold an object that was not read: OK if its bytes
// can be copied as they are.
absl::Status CheckCarried(const Checkpoint& source, Format to,
                          const ObjectEntry& object) {
  if (object.unreadable.ok()) return absl::OkStatus();
  if (source.format() == Format::kDcp && to == Format::kDcp) {
    return absl::OkStatus();
  }
  if (source.torch_archive() != nullptr && to == Format::kTorch &&
      CheckInert(object.value).ok()) {
    return absl::OkStatus();
  }
  return object.unreadable;
}

// The first few as "a: why, b: why, ...".
struct Unreadable {
  size_t count = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> some;

  void Add(absl::string_view fqn, const absl::Status& why) {
    if (++count == 1) code = why.code();
    if (some.size() < kMaxNamesShown) {
      some.push_back(absl::StrCat(fqn, ": ", why.message()));
    }
  }

  absl::Status ToStatus() const {
    if (count == 0) return absl::OkStatus();
    return absl::Status(
        code,
        absl::StrCat(count == 1 ? "a value" : absl::StrCat(count, " values"),
                     " cannot be read: ", absl::StrJoin(some, "; "),
                     count > some.size() ? "; ..." : "",
                     "; --drop-unreadable leaves out what cannot be "
                     "read"));
  }
};

absl::StatusOr<std::vector<OutputEntry>> MakeEntries(
    const Checkpoint& source, absl::Span<const SelectedEntry> selected,
    bool tensors_only, const ConvertOptions& options, ConvertPlan& plan) {
  std::vector<OutputEntry> entries;
  Unreadable unreadable;
  for (const SelectedEntry& choice : selected) {
    const CheckpointEntry& from = source.entries()[choice.entry];
    if (from.object() != nullptr && tensors_only) {
      plan.dropped.push_back(choice.fqn);
      continue;
    }
    if (from.object() != nullptr) {
      const absl::Status why = CheckCarried(source, plan.to, *from.object());
      if (!why.ok()) {
        unreadable.Add(choice.fqn, why);
        plan.dropped.push_back(choice.fqn);
        continue;
      }
    }
    ++(from.tensor() != nullptr ? plan.num_tensors : plan.num_objects);
    entries.push_back({.fqn = choice.fqn,
                       .path = choice.path,
                       .tensor = from.tensor(),
                       .dtype = choice.dtype,
                       .object = from.object()});
  }
  if (plan.dropped.empty() || options.drop_non_tensors ||
      (!tensors_only && options.drop_unreadable)) {
    return CheckNotEmpty(std::move(entries), tensors_only, source, plan);
  }
  if (!tensors_only) {
    return WithSide(Annotate(unreadable.ToStatus(), source.path()),
                    ErrorSide::kSource);
  }
  return NonTensorsError(plan.dropped, "--drop-non-tensors leaves them out");
}

// A scalar has no dimension to shard. A pattern applies only to tensors that
// have one; a name always applies, and a scalar is then refused.
bool AppliesTo(const PlacementRule& rule, const OutputEntry& entry) {
  return !entry.tensor->shape.empty() || rule.glob == entry.fqn;
}

absl::StatusOr<std::vector<Placements>> PlacementsOf(
    absl::Span<const OutputEntry> entries, const ConvertOptions& options) {
  std::vector<Placements> placements;
  std::vector<bool> used(options.placements.size());
  for (const OutputEntry& entry : entries) {
    const Dims shape = entry.tensor != nullptr ? entry.tensor->shape : Dims();
    Placements& chosen =
        placements.emplace_back(DefaultPlacements(*options.mesh, shape));
    if (entry.tensor == nullptr) continue;
    for (size_t i = 0; i < options.placements.size(); ++i) {
      const PlacementRule& rule = options.placements[i];
      if (!MatchesGlob(rule.glob, entry.fqn)) continue;
      used[i] = true;
      if (AppliesTo(rule, entry)) chosen = rule.placements;
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "placement '", options.placements[i].glob, "' matches no tensor"));
  }
  return placements;
}

// Without a mesh, the chunks of a checkpoint that has any are kept.
bool KeepsChunks(const Checkpoint& source) {
  if (source.format() == Format::kDcp) return true;
  for (const CheckpointEntry& entry : source.entries()) {
    if (entry.tensor() != nullptr && entry.tensor()->boxes.size() > 1) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Output> BuildDcp(Job& job, std::vector<OutputEntry> entries,
                                bool keep_chunks,
                                const ConvertOptions& options) {
  std::vector<DcpRank> ranks;
  if (options.mesh.has_value()) {
    DCP_ASSIGN_OR_RETURN(const std::vector<Placements> placements,
                         PlacementsOf(entries, options));
    DCP_ASSIGN_OR_RETURN(ranks,
                         ChunksForMesh(entries, *options.mesh, placements));
  } else if (keep_chunks) {
    ranks = ChunksAsStored(entries, job.source->files());
  } else {
    const Mesh one{{{.name = "shard", .size = 1}}};
    std::vector<Placements> replicate(entries.size(), Placements(1));
    DCP_ASSIGN_OR_RETURN(ranks, ChunksForMesh(entries, one, replicate));
  }
  return BuildDcpOutput(std::move(entries), job.source->files(), ranks,
                        {.max_file_bytes = options.max_shard_bytes,
                         .flattened = job.source->flattened(),
                         .save_id = job.run.own.id},
                        *job.destination);
}

// The __metadata__ of the output: the source's, then the requested values.
SafetensorsMetadata MetadataFor(const Checkpoint& source,
                                const ConvertOptions& options) {
  SafetensorsMetadata metadata;
  if (!options.drop_metadata) metadata = source.metadata();
  for (const auto& [key, value] : options.metadata) {
    const auto known =
        std::find_if(metadata.begin(), metadata.end(),
                     [&](const auto& pair) { return pair.first == key; });
    if (known == metadata.end()) {
      metadata.emplace_back(key, value);
    } else {
      known->second = value;
    }
  }
  return metadata;
}

// What the source says of itself and the output cannot hold. Every other format
// implies that it was written for PyTorch.
std::vector<std::string> DroppedMetadata(const Checkpoint& source, Format to,
                                         const ConvertOptions& options) {
  std::vector<std::string> keys;
  if (to == Format::kSafetensors && !options.drop_metadata) return keys;
  for (const auto& [key, value] : source.metadata()) {
    if (key != "format") keys.push_back(key);
  }
  return keys;
}

// The type of all floating-point tensors of the output; nullopt without a cast,
// or if they differ.
std::optional<DType> TypeAfterCast(absl::Span<const OutputEntry> entries,
                                   const ConvertOptions& options) {
  std::optional<DType> type;
  if (options.selection.casts.empty()) return type;
  for (const OutputEntry& entry : entries) {
    if (entry.tensor == nullptr || !IsFloatingPoint(entry.dtype)) continue;
    if (type.has_value() && *type != entry.dtype) return std::nullopt;
    type = entry.dtype;
  }
  return type;
}

absl::StatusOr<Output> BuildOutput(FileSystem& fs, Job& job,
                                   std::vector<OutputEntry> entries,
                                   absl::string_view dst,
                                   const ConvertOptions& options) {
  SourceFiles& files = job.source->files();
  // torch.save's name for a file that has no name.
  const absl::string_view name =
      options.stream != nullptr ? "archive" : BaseName(dst);
  switch (job.plan.to) {
    case Format::kDcp:
      return BuildDcp(job, std::move(entries),
                      KeepsChunks(*job.source) && !options.consolidate,
                      options);
    case Format::kTorch:
      if (job.source->torch_archive() != nullptr) {
        return RewriteTorchFile(*job.source, entries, options.selection, name);
      }
      return BuildTorchOutput(entries, files, name);
    case Format::kSafetensors:
      break;
  }
  const SafetensorsMetadata metadata = MetadataFor(*job.source, options);
  if (TargetKind(dst, Format::kSafetensors, options) ==
      Destination::Kind::kFile) {
    // A stream begins with the header, so digests would come too late for it.
    return BuildSafetensorsFile(entries, files, name, metadata,
                                /*with_digests=*/options.stream == nullptr);
  }
  DCP_ASSIGN_OR_RETURN(Output output,
                       BuildSafetensorsDirectory(
                           entries, files, options.max_shard_bytes, metadata));
  DCP_RETURN_IF_ERROR(
      WithSide(AddCompanionFiles(fs, job.companions,
                                 TypeAfterCast(entries, options), output),
               ErrorSide::kSource));
  return output;
}

// The maximum that the indexes of both sides take together, while that of the
// source is read or later.
uint64_t IndexMemory(const Checkpoint& source, const Output& output) {
  uint64_t num_chunks = 0;
  for (const CheckpointEntry& entry : source.entries()) {
    num_chunks += entry.tensor() != nullptr ? entry.tensor()->boxes.size() : 1;
  }
  return std::max(num_chunks * kIndexBytesPerChunkRead,
                  num_chunks * kIndexBytesPerChunk +
                      output.payloads.size() * kOutputBytesPerChunk);
}

// The part of the budget that is left for payload. The index of a checkpoint
// with very many chunks takes memory too; up to kFreeIndexBytes of it are
// covered by what a process may use in addition to its budget.
uint64_t PayloadMemory(uint64_t index_bytes, uint64_t num_lanes,
                       uint64_t budget) {
  const uint64_t excess = index_bytes - std::min(index_bytes, kFreeIndexBytes);
  return std::max(num_lanes * kMinMemoryBytes,
                  budget - std::min(budget, excess));
}

void CompletePlan(Job& job, const ConvertOptions& options) {
  ConvertPlan& plan = job.plan;
  for (const OutputFile& file : job.output.files) {
    plan.files.push_back({file.layout.name(), file.layout.size()});
    plan.bytes_to_write += file.layout.size();
  }
  for (const Payload& payload : job.output.payloads) {
    plan.bytes_to_read += static_cast<uint64_t>(Volume(payload.box.sizes)) *
                          ElementSize(payload.stored->dtype);
  }
  const uint64_t most_lanes = options.memory_bytes / kMinMemoryBytes;
  plan.num_lanes = static_cast<uint32_t>(std::min<uint64_t>(
      options.num_lanes != 0 ? options.num_lanes : UsefulLanes(job.output),
      options.stream != nullptr ? 1 : most_lanes));
  plan.index_bytes = IndexMemory(*job.source, job.output);
  // More blocks than the output needs would be pinned for nothing.
  const uint64_t useful =
      AlignUp(2 * plan.bytes_to_write, kBlockBytes) + 2 * kMinMemoryBytes;
  plan.memory_bytes = std::min(
      PayloadMemory(plan.index_bytes, plan.num_lanes, options.memory_bytes),
      std::max(plan.num_lanes * kMinMemoryBytes, useful));
  // Nor more than a lane can have in flight.
  plan.memory_bytes = std::min(
      plan.memory_bytes,
      plan.num_lanes * kBlockBytes *
          BlocksOfLane(plan.num_lanes, std::numeric_limits<uint64_t>::max()));
}

// Sets what will really be read; the check cannot be used afterwards.
absl::Status PlanReads(Job& job, const ConvertOptions& options) {
  DCP_ASSIGN_OR_RETURN(
      job.plan.bytes_to_read,
      PlanTransfer(job.output, {.direct = options.direct,
                                .num_lanes = job.plan.num_lanes,
                                .memory_bytes = job.plan.memory_bytes,
                                .stop = options.stop,
                                .check = job.check.get()}));
  if (job.check != nullptr) {
    job.plan.bytes_to_read +=
        job.check->BytesToFinish(SourceCheck::Missing::kLittle);
  }
  return absl::OkStatus();
}

void AppendOpened(const SourceFiles& files, std::string& text) {
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    const std::optional<FileInfo> opened = files.OpenedAs(i);
    if (!opened.has_value()) continue;
    absl::StrAppend(&text, files.names()[i], " ", opened->inode, " ",
                    opened->size, " ", opened->modified_ns, "\n");
  }
}

// The fingerprint of everything that decides which bytes go where.
uint64_t Fingerprint(const Job& job, absl::string_view src,
                     absl::Span<const SelectedEntry> selected,
                     const ConvertOptions& options) {
  const ConvertJournal& journal = *options.journal;
  std::string text = absl::StrCat(src, "\n", journal.source_version, "\n",
                                  FormatName(job.plan.to), "\n");
  for (const auto& [key, value] : MetadataFor(*job.source, options)) {
    absl::StrAppend(&text, key.size(), key, value.size(), value, "\n");
  }
  for (const SelectedEntry& choice : selected) {
    absl::StrAppend(&text, choice.entry, " ", static_cast<int>(choice.dtype),
                    " ", choice.fqn, "\n");
  }
  // Only the files that the conversion needs have been opened.
  AppendOpened(job.source->files(), text);
  if (job.companions.files != nullptr) {
    AppendOpened(*job.companions.files, text);
  }
  for (const OutputFile& file : job.output.files) {
    absl::StrAppend(&text, file.layout.name(), " ", file.layout.size());
    for (const LayoutPart& part : file.layout.parts()) {
      absl::StrAppend(&text, " ", part.literal_length, "+", part.payload_length,
                      ":", part.payload);
    }
  }
  for (const Payload& payload : job.output.payloads) {
    absl::StrAppend(&text, "\n", static_cast<int>(payload.dtype), " ",
                    payload.entry, " ", absl::StrJoin(payload.box.offsets, ","),
                    " ", absl::StrJoin(payload.box.sizes, ","));
  }
  return Digest64Of(AsBytes(text));
}

// Fills in what the first record of a run says.
absl::Status DescribeRun(FileSystem& fs, absl::string_view src,
                         absl::string_view dst,
                         absl::Span<const SelectedEntry> selected,
                         const ConvertOptions& options, Job& job) {
  JournaledRun& run = job.run;
  run.fingerprint = Fingerprint(job, src, selected, options);
  run.kind = TargetKind(dst, job.plan.to, options);
  // Also true if an earlier run made it, whose identity this run has taken
  // over.
  run.own.made_directory |= !job.destination->exists();
  for (const OutputFile& file : job.output.files) {
    run.own.names.push_back(file.layout.name());
  }
  // Assigning a string literal makes g++ 12 warn of an impossible overlap.
  run.index_before.assign(1, '-');
  if (run.kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(run.index_before, IndexDigest(fs, dst));
  }
  return absl::OkStatus();
}

// The files to be copied; those that are not go into the plan.
absl::StatusOr<CompanionFiles> FindCompanions(FileSystem& fs,
                                              absl::string_view src,
                                              ConvertPlan& plan) {
  absl::StatusOr<CompanionFiles> companions = FindCompanionFiles(fs, src);
  if (!companions.ok()) {
    return WithSide(companions.status(), ErrorSide::kSource);
  }
  plan.code_left_out = companions->code;
  return companions;
}

absl::StatusOr<std::unique_ptr<Destination>> FindDestination(
    FileSystem& fs, absl::string_view dst, Destination::Kind kind,
    const OwnFiles& own, const ConvertOptions& options, bool only_looks) {
  absl::StatusOr<std::unique_ptr<Destination>> destination =
      only_looks ? Destination::Look(fs, dst, kind, options.overwrite, own)
                 : Destination::Plan(fs, dst, kind, options.overwrite, own,
                                     options.writer);
  if (!destination.ok()) {
    return WithSide(destination.status(), ErrorSide::kDestination);
  }
  return destination;
}

// `before` is the run that this one may resume, or null.
absl::StatusOr<Job> Prepare(FileSystem& fs, absl::string_view src,
                            absl::string_view dst,
                            const ConvertOptions& options,
                            const JournaledRun* before = nullptr,
                            bool only_looks = false) {
  Job job;
  OpenOptions open = options.open;
  open.check_crcs = options.verify;
  open.locate_memory_bytes = options.memory_bytes;
  absl::StatusOr<std::unique_ptr<Checkpoint>> source =
      Checkpoint::Open(fs, src, open, options.stop);
  if (!source.ok()) return WithSide(source.status(), ErrorSide::kSource);
  job.source = *std::move(source);
  job.plan.from = job.source->format();
  DCP_RETURN_IF_ERROR(CheckSuffix(fs, dst, options));
  job.plan.to = TargetFormat(dst, job.plan.from, options);
  DCP_RETURN_IF_ERROR(CheckOptions(dst, job.plan.to, options));
  job.plan.dropped_metadata =
      DroppedMetadata(*job.source, job.plan.to, options);
  DCP_ASSIGN_OR_RETURN(
      const std::vector<SelectedEntry> selected,
      Select(job.source->entries(), options.selection, options.stop));
  job.run.own.id = before != nullptr ? before->own.id : NewSaveId();
  job.run.own.made_directory = before != nullptr && before->own.made_directory;
  OwnFiles own;
  if (options.journal != nullptr) own = before ? before->own : job.run.own;
  const Destination::Kind kind = TargetKind(dst, job.plan.to, options);
  if (kind == Destination::Kind::kDirectory && options.copy_companions) {
    DCP_ASSIGN_OR_RETURN(job.companions, FindCompanions(fs, src, job.plan));
    if (job.companions.files != nullptr) {
      own.companions = job.companions.files->names();
    }
  }
  if (options.stream == nullptr) {
    DCP_ASSIGN_OR_RETURN(job.destination, FindDestination(fs, dst, kind, own,
                                                          options, only_looks));
  }
  const bool tensors_only = job.plan.to == Format::kSafetensors;
  std::vector<uint32_t> wanted;
  for (const SelectedEntry& choice : selected) {
    const CheckpointEntry& entry = job.source->entries()[choice.entry];
    if (entry.tensor() != nullptr || !tensors_only) {
      wanted.push_back(choice.entry);
    }
  }
  DCP_RETURN_IF_ERROR(
      WithSide(job.source->Locate(wanted, options.stop), ErrorSide::kSource));
  if (options.verify) {
    DCP_ASSIGN_OR_RETURN(job.check, SourceCheck::Make(fs, *job.source, wanted));
  }
  DCP_ASSIGN_OR_RETURN(
      std::vector<OutputEntry> entries,
      MakeEntries(*job.source, selected, tensors_only, options, job.plan));
  DCP_ASSIGN_OR_RETURN(job.output,
                       BuildOutput(fs, job, std::move(entries), dst, options));
  job.num_beyond.resize(job.output.payloads.size());
  CompletePlan(job, options);
  if (options.admit != nullptr) DCP_RETURN_IF_ERROR(options.admit(job.plan));
  if (only_looks) DCP_RETURN_IF_ERROR(PlanReads(job, options));
  // A run that resumes has some of its files already.
  if (before == nullptr && job.destination != nullptr) {
    DCP_RETURN_IF_ERROR(
        WithSide(job.destination->CheckSpace(job.plan.bytes_to_write),
                 ErrorSide::kDestination));
  }
  if (options.journal != nullptr) {
    DCP_RETURN_IF_ERROR(
        WithSide(DescribeRun(fs, src, dst, selected, options, job),
                 ErrorSide::kDestination));
  }
  return job;
}

// Whether what was written stays. Only after a stop: a run that failed for
// another reason is not resumed.
bool Keeps(const ConvertOptions& options, const absl::Status& status) {
  return options.journal != nullptr && options.journal->keeps != nullptr &&
         absl::IsCancelled(status) && options.journal->keeps();
}

// [Note: taking back] Records must not outlive the files that they describe: a
// file that is recorded, lost and partly written again would count as complete,
// and a recorded commit without its sibling as done. So before anything
// recorded is removed or written again, the plan is recorded once more, which
// revokes all records after it.
absl::Status TakeBack(const JournaledRun& run, ConvertJournal& journal) {
  return journal.append(PlanRecord(run));
}

// Removes what the run wrote.
absl::Status Discard(FileSystem& fs, absl::string_view dst,
                     const JournaledRun& run, ConvertJournal& journal) {
  DCP_RETURN_IF_ERROR(TakeBack(run, journal));
  absl::StatusOr<std::unique_ptr<Destination>> destination =
      Destination::Plan(fs, dst, run.kind, /*overwrite=*/true, run.own);
  if (destination.ok()) (*destination)->Discard();
  return absl::OkStatus();
}

// The run in the records, if there is one to resume.
absl::StatusOr<std::optional<JournaledRun>> RunBefore(
    FileSystem& fs, absl::string_view dst, const ConvertJournal& journal,
    bool& committed) {
  DCP_ASSIGN_OR_RETURN(std::optional<JournaledRun> run,
                       ParseConvertRecords(journal.before));
  if (!run.has_value()) return run;
  DCP_ASSIGN_OR_RETURN(committed, WasCommitted(fs, dst, *run));
  if (committed) return run;
  if (run->kind == Destination::Kind::kDcpDirectory) {
    DCP_ASSIGN_OR_RETURN(const std::string index, IndexDigest(fs, dst));
    // Another checkpoint has appeared, perhaps with files of the same names.
    if (index != run->index_before) run.reset();
  }
  return run;
}

// Resumes `before`, which is reset if that is impossible.
absl::StatusOr<Job> PrepareAgain(FileSystem& fs, absl::string_view src,
                                 absl::string_view dst,
                                 const ConvertOptions& options,
                                 std::optional<JournaledRun>& before) {
  if (!before.has_value()) return Prepare(fs, src, dst, options);
  absl::StatusOr<Job> job = Prepare(fs, src, dst, options, &*before);
  if (job.ok() && job->run.fingerprint == before->fingerprint) return job;
  if (job.ok()) job->destination.reset();  // and the lock, for Discard
  if (job.ok() || !Keeps(options, job.status())) {
    DCP_RETURN_IF_ERROR(Discard(fs, dst, *before, *options.journal));
  }
  if (!job.ok()) return job;
  DCP_LOG(kInfo) << "event=conversion_begins_anew path=" << dst;
  before.reset();
  return Prepare(fs, src, dst, options);
}

// Whether the record of a file can be true: its payloads are among those of
// this run, whose plan is the same.
bool Fits(const WrittenFile& file, const Output& output) {
  return std::all_of(file.num_beyond.begin(), file.num_beyond.end(),
                     [&](const NumBeyond& beyond) {
                       return beyond.payload < output.payloads.size();
                     });
}

// The complete files of `before`. Adds their digests to `digests`, and what
// their casts found to `job`. Afterwards the journal describes only these
// files.
absl::StatusOr<std::vector<bool>> FindKept(FileSystem& fs,
                                           const JournaledRun& before, Job& job,
                                           ConvertJournal& journal,
                                           std::vector<ChunkDigest>& digests) {
  std::vector<bool> kept(job.output.files.size());
  for (const auto& [index, file] : before.files) {
    const FileLayout& layout = job.output.files[index].layout;
    const absl::StatusOr<FileInfo> info =
        fs.Stat(job.destination->PathOf(layout.name()));
    if (!info.ok() || info->kind != FileKind::kFile ||
        info->size != layout.size() || !Fits(file, job.output)) {
      continue;
    }
    kept[index] = true;
    digests.insert(digests.end(), file.digests.begin(), file.digests.end());
    for (const NumBeyond& beyond : file.num_beyond) {
      job.num_beyond[beyond.payload] += beyond.count;
    }
    ++job.plan.num_files_kept;
    job.plan.bytes_kept += layout.size();
    for (const LayoutPart& part : layout.parts()) {
      if (part.payload_length == 0) continue;
      const Payload& payload = job.output.payloads[part.payload];
      job.plan.bytes_kept += static_cast<uint64_t>(Volume(payload.box.sizes)) *
                             ElementSize(payload.stored->dtype);
    }
  }
  if (job.plan.num_files_kept == before.files.size() &&
      !before.commit.has_value()) {
    return kept;
  }
  DCP_RETURN_IF_ERROR(TakeBack(before, journal));
  for (const auto& [index, file] : before.files) {
    if (kept[index]) {
      DCP_RETURN_IF_ERROR(journal.append(FileRecord(index, file)));
    }
  }
  return kept;
}

absl::flat_hash_set<std::string> KeptNames(const Job& job,
                                           const std::vector<bool>& kept) {
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) names.insert(job.output.files[i].layout.name());
  }
  return names;
}

absl::Status Commit(Job& job, const std::vector<ChunkDigest>& digests,
                    ConvertOptions& options) {
  if (options.stop.stop_requested()) {
    return absl::CancelledError("stopped before the checkpoint appeared");
  }
  if (options.on_commit != nullptr) options.on_commit();
  const std::string index =
      job.output.index != nullptr ? job.output.index() : std::string();
  if (options.journal != nullptr) {
    const std::string mark = job.run.kind == Destination::Kind::kDcpDirectory
                                 ? index
                                 : WriteDigests(digests);
    DCP_RETURN_IF_ERROR(
        WithSide(job.destination->SyncStaging(), ErrorSide::kDestination));
    DCP_RETURN_IF_ERROR(options.journal->append(
        CommitRecord({.digest = Digest64Of(AsBytes(mark)), .plan = job.plan})));
  }
  return WithSide(job.destination->Commit(job.output.index_name, index,
                                          job.output.digests_name, digests),
                  ErrorSide::kDestination);
}

std::vector<CastLoss> CastLosses(const Job& job) {
  std::vector<CastLoss> losses;
  absl::flat_hash_map<const TensorEntry*, size_t> known;
  for (size_t i = 0; i < job.num_beyond.size(); ++i) {
    if (job.num_beyond[i] == 0) continue;
    const Payload& payload = job.output.payloads[i];
    const auto [it, is_new] = known.emplace(payload.stored, losses.size());
    if (is_new) losses.push_back({.name = "", .dtype = payload.dtype});
    losses[it->second].num_beyond += job.num_beyond[i];
  }
  for (const CheckpointEntry& entry : job.source->entries()) {
    const auto found = known.find(entry.tensor());
    if (found != known.end()) losses[found->second].name = entry.fqn;
  }
  std::sort(
      losses.begin(), losses.end(),
      [](const CastLoss& a, const CastLoss& b) { return a.name < b.name; });
  return losses;
}

absl::Status StrictCastError(absl::Span<const CastLoss> losses) {
  std::vector<std::string> some;
  for (const CastLoss& loss :
       losses.first(std::min<size_t>(losses.size(), 5))) {
    some.push_back(absl::StrCat(loss.name, " (", loss.num_beyond, " beyond ",
                                TorchName(loss.dtype), ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a strict cast would change values beyond the range of the "
      "new type: ",
      absl::StrJoin(some, ", "), losses.size() > some.size() ? ", ..." : "",
      "; cast these tensors to a wider type, or drop "
      "--strict-cast"));
}

// Passes on a stream of known length, except for its last bytes, which follow
// when Finish is called. A reader that has only the bytes before them knows
// that the stream is not complete, because both formats say where they end.
class HeldBackStream {
 public:
  // `stream` outlives this.
  HeldBackStream(ByteStream& stream, uint64_t num_bytes)
      : stream_(stream), first_held_(num_bytes - std::min(num_bytes, kHeld)) {}

  absl::Status Take(ByteSpan bytes) {
    const uint64_t pass =
        std::min<uint64_t>(bytes.size(), first_held_ - passed_);
    passed_ += pass;
    held_.insert(held_.end(), bytes.begin() + static_cast<ptrdiff_t>(pass),
                 bytes.end());
    return pass == 0 ? absl::OkStatus() : stream_(bytes.first(pass));
  }

  absl::Status Finish() { return stream_(held_); }

 private:
  static constexpr uint64_t kHeld = 4096;

  ByteStream& stream_;
  const uint64_t first_held_;  // as an offset
  uint64_t passed_ = 0;
  std::vector<uint8_t> held_;
};

// Moves the bytes to the destination, or into `stream` if there is one.
absl::StatusOr<std::vector<ChunkDigest>> MoveBytes(
    FileSystem& fs, Job& job, std::optional<HeldBackStream>& stream,
    const ImageTransferOptions& options, TransferStats& stats) {
  if (!stream.has_value()) {
    return TransferImages(fs, job.output, *job.destination, options, stats);
  }
  ByteStream into = [&stream](ByteSpan bytes) { return stream->Take(bytes); };
  DCP_RETURN_IF_ERROR(StreamImage(fs, job.output, into, options, stats));
  return std::vector<ChunkDigest>();
}

absl::Status EndStream(HeldBackStream& stream, const ConvertOptions& options) {
  if (options.stop.stop_requested()) {
    return absl::CancelledError("stopped before the end of the stream");
  }
  return WithSide(stream.Finish(), ErrorSide::kDestination);
}

// Goes from the plan to the checkpoint. `steps` says which files are already
// there; `digests` are theirs.
absl::Status CarryOut(FileSystem& fs, Job& job, TransferSteps& steps,
                      std::vector<ChunkDigest> digests,
                      ConvertOptions& options) {
  TransferStats own_stats;
  TransferStats& stats = options.stats != nullptr ? *options.stats : own_stats;
  if (job.destination != nullptr) {
    DCP_RETURN_IF_ERROR(
        WithSide(job.destination->Begin(KeptNames(job, steps.kept)),
                 ErrorSide::kDestination));
  }
  const ImageTransferOptions transfer = {
      .direct = options.direct,
      .num_lanes = job.plan.num_lanes,
      .memory_bytes = job.plan.memory_bytes,
      .stop = options.stop,
      .steps = options.journal != nullptr ? &steps : nullptr,
      .check = job.check.get(),
      .num_beyond = &job.num_beyond,
      .strict_cast = options.strict_cast};
  std::optional<HeldBackStream> stream;
  if (options.stream != nullptr) {
    stream.emplace(options.stream, job.plan.bytes_to_write);
  }
  absl::StatusOr<std::vector<ChunkDigest>> more =
      MoveBytes(fs, job, stream, transfer, stats);
  job.plan.cast_losses = CastLosses(job);
  if (options.strict_cast && !job.plan.cast_losses.empty()) {
    return StrictCastError(job.plan.cast_losses);
  }
  absl::Status checked = more.status();
  if (checked.ok() && job.check != nullptr) {
    checked = job.check->Finish({.memory_bytes = job.plan.memory_bytes,
                                 .stop = options.stop,
                                 .stats = &stats},
                                job.plan.num_files_kept > 0
                                    ? SourceCheck::Missing::kWhatMoved
                                    : SourceCheck::Missing::kLittle);
    job.plan.check = job.check->report();
  }
  // If the bytes mix two states of a file, they must not get valid checksums;
  // and if the file contradicts its own checksums, the mix is the reason.
  if (checked.ok() || absl::IsDataLoss(checked)) {
    DCP_RETURN_IF_ERROR(
        WithSide(job.source->files().CheckUnchanged(), ErrorSide::kSource));
    if (job.companions.files != nullptr) {
      DCP_RETURN_IF_ERROR(
          WithSide(job.companions.files->CheckUnchanged(), ErrorSide::kSource));
    }
  }
  DCP_RETURN_IF_ERROR(checked);
  if (stream.has_value()) return EndStream(*stream, options);
  if (digests.empty()) {
    digests = *std::move(more);
  } else {
    digests.insert(digests.end(), more->begin(), more->end());
  }
  return Commit(job, digests, options);
}

// The checkpoint has appeared; the run that made it was killed before it said
// so.
absl::StatusOr<ConvertPlan> FinishBefore(FileSystem& fs, absl::string_view dst,
                                         JournaledRun run) {
  DCP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Destination> destination,
      Destination::Plan(fs, dst, run.kind, /*overwrite=*/true, run.own));
  DCP_RETURN_IF_ERROR(
      WithSide(destination->FinishCommit(), ErrorSide::kDestination));
  return std::move(run.commit->plan);
}

}  // namespace

absl::StatusOr<ConvertPlan> PlanConvert(FileSystem& fs, absl::string_view src,
                                        absl::string_view dst,
                                        ConvertOptions options) {
  DCP_ASSIGN_OR_RETURN(Job job, Prepare(fs, src, dst, options, nullptr,
                                        /*only_looks=*/true));
  return std::move(job.plan);
}

absl::StatusOr<ConvertPlan> ConvertCheckpoint(FileSystem& fs,
                                              absl::string_view src,
                                              absl::string_view dst,
                                              ConvertOptions options) {
  std::optional<JournaledRun> before;
  if (options.journal != nullptr) {
    bool committed = false;
    DCP_ASSIGN_OR_RETURN(before,
                         RunBefore(fs, dst, *options.journal, committed));
    if (committed) return FinishBefore(fs, dst, *std::move(before));
    if (options.stop.stop_requested()) {
      const absl::Status stopped =
          absl::CancelledError("stopped before it began");
      if (before.has_value() && !Keeps(options, stopped)) {
        DCP_RETURN_IF_ERROR(Discard(fs, dst, *before, *options.journal));
      }
      return stopped;
    }
  }
  DCP_ASSIGN_OR_RETURN(Job job, PrepareAgain(fs, src, dst, options, before));
  std::vector<ChunkDigest> digests;
  TransferSteps steps;
  if (before.has_value()) {
    DCP_ASSIGN_OR_RETURN(steps.kept,
                         FindKept(fs, *before, job, *options.journal, digests));
  }
  if (options.on_plan != nullptr) options.on_plan(job.plan);
  if (options.journal != nullptr) {
    ConvertJournal& journal = *options.journal;
    steps.step_bytes = journal.step_bytes;
    steps.on_file = [&journal](uint32_t number, const WrittenFile& file) {
      DCP_RETURN_IF_ERROR(journal.append(FileRecord(number, file)));
      ++journal.num_files;
      return absl::OkStatus();
    };
    journal.num_files = job.plan.num_files_kept;
    if (!before.has_value()) {
      DCP_RETURN_IF_ERROR(journal.append(PlanRecord(job.run)));
    }
  }
  const absl::Status status =
      CarryOut(fs, job, steps, std::move(digests), options);
  if (!status.ok() && options.journal != nullptr &&
      (Keeps(options, status) || !TakeBack(job.run, *options.journal).ok())) {
    job.destination->Keep();
  }
  DCP_RETURN_IF_ERROR(status);
  return std::move(job.plan);
}

}  // namespace dcp
