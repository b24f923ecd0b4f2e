// SPDX-License-Identifier: Apache-2.0
// An item is a zip archive: the directory is at the end, the pickle that
// describes the tensor is at the beginning, and kilobytes or gigabytes of
// payload lie between. Each item therefore costs two short reads, or one if it
// is small. If a parser needs more (such as an object's long pickle), its
// request reads it.
//
// FileSystemWriter(serialization_format=SAFETENSORS) writes something else: one
// safetensors file per rank, and an index that wrongly places all items at
// offset 0. Such an item is found by name in the file's header.
#include "dcp/checkpoint/formats/item_locator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/formats/item_order.h"
#include "dcp/checkpoint/formats/item_part.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/pickle/inert_value.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/format/torch/value_copy.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/read_schedule.h"
#include "dcp/plan/strided/copy_run.h"

namespace dcp {
namespace {

constexpr uint64_t kProbeBytes = 4096;
// Items that one batch reads.
constexpr size_t kItemsPerBatch = 512;
// From this many items on, a second thread with more blocks is worthwhile. A
// store needs fewer items, because only the number of requests in flight
// counts.
constexpr size_t kMinItemsForTwoLanes = 16 * kItemsPerBatch;
constexpr size_t kMinStoredItemsForTwoLanes = 64;
// On a disk, one more request in flight is worth one more block per this many
// items.
constexpr size_t kItemsPerBlock = 64;
// Smaller items in a store are read whole. This is less than a transfer's
// kObjectReadGapBytes, because with many requests in flight one more costs
// less.
constexpr uint64_t kStoredItemGapBytes = uint64_t{256} << 10;

// The head and tail of one item in the batch's buffer; they adjoin if the item
// is small.
struct Probe {
  uint64_t head = 0;  // position in the buffer
  uint64_t head_length = 0;
  uint64_t tail_length = 0;  // the tail follows the head
};

absl::Status CheckReadable(const CheckpointParts& parts,
                           absl::Span<const EntryChunk> wanted) {
  for (const EntryChunk& chunk : wanted) {
    const TensorEntry* const tensor = parts.entries[chunk.entry].tensor();
    if (tensor != nullptr) DCP_RETURN_IF_ERROR(tensor->problem);
  }
  return absl::OkStatus();
}

// The lanes' shared state in addition to the checkpoint. The lane that reads an
// item writes to that item's location or entry.
struct Shared {
  const std::vector<uint64_t> object_ends;
  absl::Mutex mutex;  // guards the checkpoint's arena
};

// Reads one lane's items.
class Locator {
 public:
  // `firsts` are the positions of the lane's items in `chunks`, and the end of
  // the last one.
  Locator(FileSystem& fs, CheckpointParts& parts,
          absl::Span<const ItemChunk> chunks, absl::Span<const size_t> firsts,
          OpenProgress* progress, const ItemVisitor& visitor, Shared& shared)
      : fs_(fs),
        limits_{.max_bytes = kMaxReadBytes,
                .gap_bytes = parts.files->traits().has_rename
                                 ? kReadGapBytes
                                 : kStoredItemGapBytes},
        parts_(parts),
        chunks_(chunks),
        firsts_(firsts),
        progress_(progress),
        visitor_(visitor),
        shared_(shared) {}

  absl::Status Run(Lane& lane, std::stop_token stop, TransferStats& stats) {
    return RunPipeline(
        *lane.queue, lane.pool, /*blocks_per_batch=*/0,
        [&](Batch& batch) { return NextBatch(batch); },
        [&](FileHandle handle) { return parts_.files->Describe(handle); },
        std::move(stop), stats);
  }

 private:
  struct Round {
    size_t first = 0;
    std::vector<Probe> probes;
    std::string buffer;
    std::vector<CopyRun> runs;
    ReadSchedule schedule;
  };

  // The chunks in an item, which is a tensor unless there is only one.
  using Item = absl::Span<const ItemChunk>;

  size_t num_items() const { return firsts_.size() - 1; }
  Item item(size_t i) const {
    return chunks_.subspan(firsts_[i], firsts_[i + 1] - firsts_[i]);
  }

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    if (next_ == num_items()) return false;
    auto round = std::make_shared<Round>();  // owners: the batch's callbacks
    round->first = next_;
    const size_t last = std::min(num_items(), next_ + kItemsPerBatch);
    uint64_t size = 0;
    for (; next_ < last; ++next_) {
      const ItemChunk& first = item(next_)[0];
      const StorageInfo& storage = first.storage;
      DCP_RETURN_IF_ERROR(WithChunkPlace(
          first, Annotate(parts_.files->CheckRange(storage.file, storage.offset,
                                                   storage.length),
                          parts_.entries[first.entry].fqn)));
      AddProbe(storage, *round, size);
    }
    round->buffer.resize(size);
    round->schedule = ScheduleReads(round->runs, limits_);
    for (const ReadRange& range : round->schedule.ranges) {
      DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(range.file));
      batch.reads.push_back({file, range.offset, range.length});
    }
    batch.on_read = [round](size_t read, ByteSpan data) {
      Scatter(*round, round->schedule.ranges[read], data);
      return absl::OkStatus();
    };
    batch.on_filled = [this, round](std::vector<Block>&) {
      return ParseRound(*round);
    };
    return true;
  }

  static void AddProbe(const StorageInfo& storage, Round& round,
                       uint64_t& size) {
    Probe probe;
    probe.head = size;
    if (storage.length <= 3 * kProbeBytes) {
      probe.head_length = storage.length;
    } else {
      probe.head_length = probe.tail_length = kProbeBytes;
    }
    const auto add = [&](uint64_t offset, uint64_t length) {
      if (length > 0) {
        round.runs.push_back(
            {.file = storage.file, .src = offset, .dst = size, .unit = length});
      }
      size += length;
    };
    add(storage.offset, probe.head_length);
    add(storage.offset + storage.length - probe.tail_length, probe.tail_length);
    round.probes.push_back(probe);
  }

  static void Scatter(Round& round, const ReadRange& range, ByteSpan data) {
    for (uint32_t i = 0; i < range.num_runs; ++i) {
      const CopyRun& run =
          round.runs[round.schedule.run_indices[range.first_run + i]];
      ApplyRun(run, range.offset, range.length, data,
               [&](const uint8_t* src, uint64_t dst, uint64_t n) {
                 std::memcpy(round.buffer.data() + dst, src, n);
               });
    }
  }

  absl::Status WithChunkPlace(const ItemChunk& chunk,
                              absl::Status status) const {
    if (status.ok()) return status;
    return WithPlace(std::move(status),
                     {.file = parts_.files->names()[chunk.storage.file],
                      .tensor = parts_.entries[chunk.entry].fqn,
                      .offset = absl::StrCat(chunk.storage.offset)});
  }

  absl::Status ParseRound(const Round& round) {
    for (size_t i = 0; i < round.probes.size(); ++i) {
      const Item read = item(round.first + i);
      const ItemChunk& first = read[0];
      DCP_RETURN_IF_ERROR(WithChunkPlace(
          first, Annotate(ParseItem(read, round.probes[i], round.buffer),
                          parts_.entries[first.entry].fqn, ": ",
                          parts_.files->names()[first.storage.file], " at ",
                          first.storage.offset)));
    }
    if (progress_ != nullptr) {
      progress_->num_items_located += round.probes.size();
    }
    return absl::OkStatus();
  }

  absl::Status ParseItem(Item item, const Probe& probe,
                         const std::string& buffer) {
    const StorageInfo storage = item[0].storage;
    CheckpointEntry& entry = parts_.entries[item[0].entry];
    const bool is_tensor = entry.tensor() != nullptr;
    const absl::string_view head(buffer.data() + probe.head, probe.head_length);
    if (is_tensor && head.substr(0, 4) != "PK\x03\x04") {
      return PlaceByName(item);
    }
    const absl::StatusOr<TorchArchive> archive =
        ReadArchive(storage, probe, AsBytes(buffer));
    if (archive.ok() && visitor_ != nullptr) {
      Visit(item, probe, AsBytes(buffer), *archive);
    }
    if (is_tensor) {
      DCP_RETURN_IF_ERROR(archive.status());
      return PlaceFromArchive(item, *archive);
    }
    DCP_ASSIGN_OR_RETURN(ObjectEntry object, MakeObjectEntry(storage, archive));
    object.item = storage;
    object.located = true;
    entry.value = std::move(object);
    return absl::OkStatus();
  }

  // An item with valid bytes that cannot be represented as an object remains in
  // the checkpoint as unreadable.
  absl::StatusOr<ObjectEntry> MakeObjectEntry(
      const StorageInfo& storage, const absl::StatusOr<TorchArchive>& archive) {
    if (absl::IsUnimplemented(archive.status())) {
      ObjectEntry unreadable;
      unreadable.unreadable = archive.status();
      return unreadable;
    }
    DCP_RETURN_IF_ERROR(archive.status());
    if (absl::Status inert = CheckInert(archive->root); !inert.ok()) {
      ObjectEntry unreadable =
          UnreadableObject(*archive, archive->root, storage.file,
                           storage.offset, std::move(inert));
      unreadable.value = Value();  // belongs to the archive, which is destroyed
      return unreadable;
    }
    absl::MutexLock lock(&shared_.mutex);
    return ObjectInArchive(*archive, CopyValue(parts_.arena, archive->root),
                           storage.file, storage.offset);
  }

  // The item's requested bytes, or null data if the probe lacks them.
  static ByteSpan ProbedBytes(const StorageInfo& storage, const Probe& probe,
                              ByteSpan buffer, uint64_t offset,
                              uint64_t bytes) {
    const uint64_t length = storage.length;
    const uint64_t tail_start = length - probe.tail_length;
    if (offset <= probe.head_length && bytes <= probe.head_length - offset) {
      return buffer.subspan(probe.head + offset, bytes);
    }
    if (offset >= tail_start && offset <= length && bytes <= length - offset) {
      return buffer.subspan(
          probe.head + probe.head_length + (offset - tail_start), bytes);
    }
    return {};
  }

  void Visit(Item item, const Probe& probe, ByteSpan buffer,
             const TorchArchive& archive) const {
    visitor_({.chunks = item,
              .archive = &archive,
              .bytes = [&](uint64_t offset, uint64_t length) {
                return ProbedBytes(item[0].storage, probe, buffer, offset,
                                   length);
              }});
  }

  absl::StatusOr<TorchArchive> ReadArchive(const StorageInfo& storage,
                                           const Probe& probe,
                                           ByteSpan buffer) {
    DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(storage.file));
    FileReader reader(fs_, file, storage.offset, storage.length);
    return ReadTorchArchive(
        storage.length, /*allow_legacy=*/false,
        [&](uint64_t offset, uint64_t bytes) -> absl::StatusOr<ByteSpan> {
          const ByteSpan probed =
              ProbedBytes(storage, probe, buffer, offset, bytes);
          if (probed.data() != nullptr) return probed;
          return reader.Read(offset, bytes);
        },
        parts_.check_index);
  }

  absl::Status PlaceFromArchive(Item item, const TorchArchive& archive) {
    DCP_RETURN_IF_ERROR(CheckHoldsTensor(archive));
    DCP_ASSIGN_OR_RETURN(
        const TensorEntry stored,
        TensorInArchive(archive, archive.root, item[0].storage.file,
                        item[0].storage.offset));
    ChunkLocation location = stored.locations[0];
    location.item = item[0].storage;
    return Place(item, "item", stored.dtype, stored.shape, location);
  }

  // Gives each chunk in an item a part of the tensor, which is at `location`
  // and in `what`.
  absl::Status Place(Item item, absl::string_view what, DType dtype,
                     const Dims& shape, const ChunkLocation& location) {
    for (const ItemChunk& chunk : item) {
      auto& tensor = std::get<TensorEntry>(parts_.entries[chunk.entry].value);
      const Dims& sizes = tensor.boxes[chunk.chunk].sizes;
      const ItemPart* const part =
          tensor.parts.empty() ? nullptr : &tensor.parts[chunk.chunk];
      const Dims& want = part != nullptr ? part->shape : sizes;
      if (dtype != tensor.dtype || shape != want) {
        return absl::DataLossError(
            absl::StrCat("the ", what, " holds ", TorchName(dtype), " ",
                         ShapeToString(shape), ", but the index says ",
                         TorchName(tensor.dtype), " ", ShapeToString(want)));
      }
      ChunkLocation& placed = tensor.locations[chunk.chunk];
      placed = location;
      if (part != nullptr) {
        NarrowToPart(*part, sizes, ElementSize(dtype), placed);
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlaceByName(Item item) {
    const StorageInfo& storage = item[0].storage;
    DCP_ASSIGN_OR_RETURN(const NamedTensors* tensors,
                         ReadNamedTensors(storage.file));
    const auto it = tensors->find(parts_.entries[item[0].entry].fqn);
    if (it == tensors->end()) {
      return absl::DataLossError(
          "the item is neither a torch.save archive nor named in a safetensors "
          "header");
    }
    const SafetensorsTensor& stored = it->second;
    ChunkLocation location;
    location.located = true;
    location.payload_offset = stored.begin;
    location.item = {.file = storage.file,
                     .offset = stored.begin,
                     .length = stored.end - stored.begin};
    return Place(item, "safetensors file", stored.dtype, stored.shape,
                 location);
  }

  // The tensors in a data file that is one safetensors file, possibly after
  // some bytes entries. begin and end count from the start of the file.
  using NamedTensors = absl::flat_hash_map<std::string, SafetensorsTensor>;

  absl::StatusOr<const NamedTensors*> ReadNamedTensors(uint32_t file) {
    std::unique_ptr<NamedTensors>& known = named_tensors_[file];
    if (known != nullptr) return known.get();
    DCP_ASSIGN_OR_RETURN(const File opened, parts_.files->Get(file));
    const uint64_t start = std::min(shared_.object_ends[file], opened.size);
    FileReader reader(fs_, opened, start, opened.size - start);
    absl::StatusOr<SafetensorsHeader> header =
        ReadSafetensorsHeader(opened.size - start, reader.read_at());
    // Bytes that are not a header, read as a length, exceed the limit.
    const bool is_other = IsAboutBytes(header.status()) ||
                          absl::IsResourceExhausted(header.status());
    if (!header.ok() && !is_other) return header.status();
    if (!header.ok()) {
      return absl::DataLossError(absl::StrCat(
          "this is not a torch.save archive, and read as safetensors: ",
          header.status().message()));
    }
    auto tensors = std::make_unique<NamedTensors>();
    for (SafetensorsTensor& tensor : header->tensors) {
      tensor.begin += start + header->data_offset;
      tensor.end += start + header->data_offset;
      std::string name = tensor.name;
      tensors->emplace(std::move(name), std::move(tensor));
    }
    known = std::move(tensors);
    return known.get();
  }

  FileSystem& fs_;
  const ReadLimits limits_;
  CheckpointParts& parts_;
  const absl::Span<const ItemChunk> chunks_;
  const absl::Span<const size_t> firsts_;
  OpenProgress* const progress_;  // or null
  const ItemVisitor& visitor_;    // or null
  Shared& shared_;
  size_t next_ = 0;
  absl::flat_hash_map<uint32_t, std::unique_ptr<NamedTensors>> named_tensors_;
};

}  // namespace

std::vector<EntryChunk> ChunksInEntries(const CheckpointParts& parts,
                                        absl::Span<const uint32_t> entries) {
  std::vector<EntryChunk> chunks;
  for (const uint32_t i : entries) {
    const TensorEntry* const tensor = parts.entries[i].tensor();
    const size_t num_chunks = tensor == nullptr ? 1 : tensor->boxes.size();
    for (uint32_t c = 0; c < num_chunks; ++c) chunks.push_back({i, c});
  }
  return chunks;
}

absl::Status LocateItems(FileSystem& fs, CheckpointParts& parts,
                         absl::Span<const EntryChunk> wanted,
                         uint64_t memory_bytes, std::stop_token stop,
                         OpenProgress* progress, const ItemVisitor& visitor) {
  DCP_RETURN_IF_ERROR(CheckReadable(parts, wanted));
  const std::vector<ItemChunk> chunks = ChunksToLocate(parts, wanted);
  if (chunks.empty()) return absl::OkStatus();
  std::vector<uint32_t> files;
  for (const ItemChunk& chunk : chunks) {  // sorted by file
    if (files.empty() || files.back() != chunk.storage.file) {
      files.push_back(chunk.storage.file);
    }
  }
  parts.files->OpenAhead(files);
  const std::vector<size_t> firsts = ItemStarts(parts, chunks);
  const size_t num_items = firsts.size() - 1;
  if (progress != nullptr) progress->num_items += num_items;
  const bool is_stored = !parts.files->traits().has_rename;
  const bool is_worth_two = num_items >= (is_stored ? kMinStoredItemsForTwoLanes
                                                    : kMinItemsForTwoLanes);
  const uint32_t num_lanes =
      is_worth_two && memory_bytes >= 2 * kMinMemoryBytes ? 2 : 1;
  const uint64_t num_blocks =
      std::clamp<uint64_t>(is_stored ? num_items : num_items / kItemsPerBlock,
                           kMinBlocks, kQueueDepth);
  TransferStats stats;
  Shared shared{.object_ends = ObjectEnds(parts), .mutex = {}};
  return RunLanes(
      fs, num_lanes,
      std::min(memory_bytes, num_lanes * num_blocks * kBlockBytes), stop,
      [&](Lane& lane, std::stop_token lane_stop) {
        const size_t first = num_items * lane.index / num_lanes;
        const size_t last = num_items * (lane.index + 1) / num_lanes;
        return Locator(
                   fs, parts, chunks,
                   absl::MakeConstSpan(firsts).subspan(first, last - first + 1),
                   progress, visitor, shared)
            .Run(lane, std::move(lane_stop), stats);
      });
}

}  // namespace dcp
