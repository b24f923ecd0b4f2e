// SPDX-License-Identifier: Apache-2.0
// An item is a zip archive: the directory is at the end, the pickle that
// describes the tensor is at the beginning, and kilobytes or gigabytes of
// payload lie between. Each item therefore costs two short reads, or one if it
// is small. If a parser needs more (such as an object's long pickle), its
// request reads it.
#include "dcp/checkpoint/formats/item_locator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/formats/item_order.h"
#include "dcp/checkpoint/formats/item_placer.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_reader.h"
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

// Reads one lane's items, and gives them to an ItemPlacer.
class Locator {
 public:
  // `firsts` are the positions of the lane's items in `chunks`, and the end of
  // the last one.
  Locator(FileSystem& fs, CheckpointParts& parts,
          absl::Span<const ItemChunk> chunks, absl::Span<const size_t> firsts,
          OpenProgress* progress, const ItemVisitor& visitor,
          ItemPlacer::Shared& shared)
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
        placer_(fs, parts, shared) {}

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
    const bool is_tensor = parts_.entries[item[0].entry].tensor() != nullptr;
    const absl::string_view head(buffer.data() + probe.head, probe.head_length);
    if (is_tensor && head.substr(0, 4) != "PK\x03\x04") {
      return placer_.PlaceByName(item);
    }
    const absl::StatusOr<TorchArchive> archive =
        ReadArchive(storage, probe, AsBytes(buffer));
    if (archive.ok() && visitor_ != nullptr) {
      Visit(item, probe, AsBytes(buffer), *archive);
    }
    if (!is_tensor) return placer_.PlaceObject(item[0], archive);
    DCP_RETURN_IF_ERROR(archive.status());
    return placer_.PlaceTensor(item, *archive);
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

  FileSystem& fs_;
  const ReadLimits limits_;
  CheckpointParts& parts_;
  const absl::Span<const ItemChunk> chunks_;
  const absl::Span<const size_t> firsts_;
  OpenProgress* const progress_;  // or null
  const ItemVisitor& visitor_;    // or null
  ItemPlacer placer_;
  size_t next_ = 0;
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
  ItemPlacer::Shared shared{.object_ends = ObjectEnds(parts), .mutex = {}};
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
