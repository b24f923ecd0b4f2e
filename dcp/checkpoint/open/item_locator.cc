// An item is a zip archive: its directory is at the end, the pickle that
// describes the tensor is at the beginning, and kilobytes or gigabytes of
// payload lie between. Each item therefore costs two short reads, or one if it
// is small. What a parser needs beyond these (such as an object's long pickle)
// is read when it asks.
//
// FileSystemWriter(serialization_format=SAFETENSORS) writes something else: one
// safetensors file per rank, and an index that wrongly places all items at
// offset 0. Such an item is found by its name in the header of its file.
#include "dcp/checkpoint/open/item_locator.h"

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
#include "dcp/checkpoint/open/file_reader.h"
#include "dcp/checkpoint/open/torch_opener.h"
#include "dcp/format/inert_value.h"
#include "dcp/format/safetensors.h"
#include "dcp/format/torch_archive.h"
#include "dcp/format/torch_archive_reader.h"
#include "dcp/format/value_copy.h"
#include "dcp/io/lane.h"
#include "dcp/io/pipeline.h"
#include "dcp/plan/copy_run.h"
#include "dcp/plan/read_schedule.h"

namespace dcp {
namespace {

constexpr uint64_t kProbeBytes = 4096;
// Items that are read with one batch.
constexpr size_t kItemsPerBatch = 512;
// From this many items on, a second thread with its blocks is worthwhile.
constexpr size_t kMinItemsForTwoLanes = 16 * kItemsPerBatch;

struct Item {
  uint32_t entry;
  uint32_t chunk;  // only for a tensor
  StorageInfo storage;
};

// The head and tail of one item in the batch's buffer; they adjoin if the item
// is small.
struct Probe {
  uint64_t head = 0;  // position in the buffer
  uint64_t head_length = 0;
  uint64_t tail_length = 0;  // the tail follows the head
};

std::vector<Item> ItemsOf(const CheckpointParts& parts,
                          absl::Span<const uint32_t> entries) {
  std::vector<Item> items;
  for (const uint32_t i : entries) {
    const CheckpointEntry& entry = parts.entries[i];
    if (const ObjectEntry* object = entry.object()) {
      if (!object->located) items.push_back({i, 0, object->item});
      continue;
    }
    const TensorEntry& tensor = *entry.tensor();
    for (uint32_t c = 0; c < tensor.boxes.size(); ++c) {
      if (tensor.locations[c].located) continue;
      items.push_back({i, c, tensor.locations[c].item});
    }
  }
  const auto is_before = [](const Item& a, const Item& b) {
    return std::pair(a.storage.file, a.storage.offset) <
           std::pair(b.storage.file, b.storage.offset);
  };
  std::sort(items.begin(), items.end(), is_before);
  return items;
}

// For each file, where its bytes entries end according to the index.
std::vector<uint64_t> EndsOfObjects(const CheckpointParts& parts) {
  std::vector<uint64_t> ends(parts.files->names().size());
  for (const CheckpointEntry& entry : parts.entries) {
    const ObjectEntry* object = entry.object();
    if (object == nullptr) continue;
    uint64_t& end = ends[object->item.file];
    end = std::max(end, object->item.offset + object->item.length);
  }
  return ends;
}

// What the lanes share in addition to the checkpoint. The lane that reads an
// item writes to the item's location or entry.
struct Shared {
  const std::vector<uint64_t> ends_of_objects;
  absl::Mutex mutex;  // guards the checkpoint's arena
};

// Reads the items of one lane.
class Locator {
 public:
  Locator(FileSystem& fs, CheckpointParts& parts, absl::Span<const Item> items,
          OpenProgress* progress, const ItemVisitor& visitor, Shared& shared)
      : fs_(fs),
        parts_(parts),
        items_(items),
        progress_(progress),
        visitor_(visitor),
        shared_(shared) {}

  absl::Status Run(Lane& lane, std::stop_token stop, TransferStats& stats) {
    return RunPipeline(
        *lane.queue, lane.pool, 1,
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

  absl::StatusOr<bool> NextBatch(Batch& batch) {
    if (next_ == items_.size()) return false;
    auto round = std::make_shared<Round>();  // owners: the batch's callbacks
    round->first = next_;
    const size_t last = std::min(items_.size(), next_ + kItemsPerBatch);
    uint64_t size = 0;
    for (; next_ < last; ++next_) {
      const StorageInfo& storage = items_[next_].storage;
      DCP_RETURN_IF_ERROR(WithPlaceOf(
          items_[next_],
          Annotate(parts_.files->CheckRange(storage.file, storage.offset,
                                            storage.length),
                   parts_.entries[items_[next_].entry].fqn)));
      AddProbe(storage, *round, size);
    }
    round->buffer.resize(size);
    round->schedule = ScheduleReads(round->runs, kMaxReadBytes);
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

  absl::Status WithPlaceOf(const Item& item, absl::Status status) const {
    if (status.ok()) return status;
    return WithPlace(std::move(status),
                     {.file = parts_.files->names()[item.storage.file],
                      .tensor = parts_.entries[item.entry].fqn,
                      .offset = absl::StrCat(item.storage.offset)});
  }

  absl::Status ParseRound(const Round& round) {
    for (size_t i = 0; i < round.probes.size(); ++i) {
      const Item& item = items_[round.first + i];
      DCP_RETURN_IF_ERROR(WithPlaceOf(
          item, Annotate(ParseItem(item, round.probes[i], round.buffer),
                         parts_.entries[item.entry].fqn, ": ",
                         parts_.files->names()[item.storage.file], " at ",
                         item.storage.offset)));
    }
    if (progress_ != nullptr) {
      progress_->num_items_located += round.probes.size();
    }
    return absl::OkStatus();
  }

  absl::Status ParseItem(const Item& item, const Probe& probe,
                         const std::string& buffer) {
    CheckpointEntry& entry = parts_.entries[item.entry];
    auto* tensor = std::get_if<TensorEntry>(&entry.value);
    const absl::string_view head(buffer.data() + probe.head, probe.head_length);
    if (tensor != nullptr && head.substr(0, 4) != "PK\x03\x04") {
      return PlaceByName(item, entry.fqn, *tensor);
    }
    const absl::StatusOr<TorchArchive> archive =
        ReadArchive(item, probe, AsBytes(buffer));
    if (archive.ok() && visitor_ != nullptr) {
      Visit(item, probe, AsBytes(buffer), *archive);
    }
    if (tensor != nullptr) {
      DCP_RETURN_IF_ERROR(archive.status());
      return PlaceChunk(item, *archive, *tensor);
    }
    DCP_ASSIGN_OR_RETURN(ObjectEntry object, ObjectOf(item, archive));
    object.item = item.storage;
    object.located = true;
    entry.value = std::move(object);
    return absl::OkStatus();
  }

  // An item whose bytes are valid but cannot be represented as an object
  // remains in the checkpoint as unreadable.
  absl::StatusOr<ObjectEntry> ObjectOf(
      const Item& item, const absl::StatusOr<TorchArchive>& archive) {
    ObjectEntry unreadable;
    unreadable.unreadable =
        archive.ok() ? CheckInert(archive->root) : archive.status();
    if (archive.ok() && unreadable.unreadable.ok()) {
      absl::MutexLock lock(&shared_.mutex);
      return ObjectInArchive(*archive, CopyValue(parts_.arena, archive->root),
                             item.storage.file, item.storage.offset);
    }
    if (archive.ok() || absl::IsUnimplemented(archive.status())) {
      return unreadable;
    }
    return archive.status();
  }

  // The requested bytes of the item if the probe holds them; otherwise null
  // data.
  static ByteSpan Probed(const Item& item, const Probe& probe, ByteSpan buffer,
                         uint64_t offset, uint64_t bytes) {
    const uint64_t length = item.storage.length;
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

  void Visit(const Item& item, const Probe& probe, ByteSpan buffer,
             const TorchArchive& archive) const {
    visitor_({.entry = item.entry,
              .chunk = item.chunk,
              .storage = item.storage,
              .archive = &archive,
              .bytes = [&](uint64_t offset, uint64_t length) {
                return Probed(item, probe, buffer, offset, length);
              }});
  }

  absl::StatusOr<TorchArchive> ReadArchive(const Item& item, const Probe& probe,
                                           ByteSpan buffer) {
    DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(item.storage.file));
    FileReader reader(fs_, file, item.storage.offset, item.storage.length);
    return ReadTorchArchive(
        item.storage.length, /*allow_legacy=*/false,
        [&](uint64_t offset, uint64_t bytes) -> absl::StatusOr<ByteSpan> {
          const ByteSpan probed = Probed(item, probe, buffer, offset, bytes);
          if (probed.data() != nullptr) return probed;
          return reader.Read(offset, bytes);
        },
        parts_.check_crcs);
  }

  static absl::Status PlaceChunk(const Item& item, const TorchArchive& archive,
                                 TensorEntry& tensor) {
    if (!IsTensor(archive.root)) {
      return absl::DataLossError(
          absl::StrCat("the item holds ", ToString(archive.root, 60),
                       ", but the index says it is a tensor"));
    }
    DCP_ASSIGN_OR_RETURN(
        TensorEntry stored,
        TensorInArchive(archive, archive.root, item.storage.file,
                        item.storage.offset));
    const Dims& want = tensor.boxes[item.chunk].sizes;
    if (stored.dtype != tensor.dtype || stored.shape != want) {
      return absl::DataLossError(
          absl::StrCat("the item holds ", TorchName(stored.dtype), " ",
                       ShapeToString(stored.shape), ", but the index says ",
                       TorchName(tensor.dtype), " ", ShapeToString(want)));
    }
    ChunkLocation& location = tensor.locations[item.chunk];
    location = std::move(stored.locations[0]);
    location.item = item.storage;
    return absl::OkStatus();
  }

  absl::Status PlaceByName(const Item& item, absl::string_view fqn,
                           TensorEntry& tensor) {
    DCP_ASSIGN_OR_RETURN(const NamedTensors* tensors,
                         TensorsOf(item.storage.file));
    const auto it = tensors->find(fqn);
    if (it == tensors->end()) {
      return absl::DataLossError(
          "the item is neither a torch.save archive nor named in a safetensors "
          "header");
    }
    const SafetensorsTensor& stored = it->second;
    const Dims& want = tensor.boxes[item.chunk].sizes;
    if (stored.dtype != tensor.dtype || stored.shape != want) {
      return absl::DataLossError(absl::StrCat(
          "the safetensors file holds ", TorchName(stored.dtype), " ",
          ShapeToString(stored.shape), ", but the index says ",
          TorchName(tensor.dtype), " ", ShapeToString(want)));
    }
    ChunkLocation& location = tensor.locations[item.chunk];
    location.located = true;
    location.payload_offset = stored.begin;
    location.item.offset = stored.begin;
    location.item.length = stored.end - stored.begin;
    return absl::OkStatus();
  }

  // The tensors of a data file that is one safetensors file, possibly after
  // some bytes entries. begin and end count from the start of the file.
  using NamedTensors = absl::flat_hash_map<std::string, SafetensorsTensor>;

  absl::StatusOr<const NamedTensors*> TensorsOf(uint32_t file) {
    std::unique_ptr<NamedTensors>& known = named_tensors_[file];
    if (known != nullptr) return known.get();
    DCP_ASSIGN_OR_RETURN(const File opened, parts_.files->Get(file));
    const uint64_t start = std::min(shared_.ends_of_objects[file], opened.size);
    FileReader reader(fs_, opened, start, opened.size - start);
    absl::StatusOr<SafetensorsHeader> header =
        ReadSafetensorsHeader(opened.size - start, reader.read_at());
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
  CheckpointParts& parts_;
  const absl::Span<const Item> items_;
  OpenProgress* const progress_;  // or null
  const ItemVisitor& visitor_;    // or null
  Shared& shared_;
  size_t next_ = 0;
  absl::flat_hash_map<uint32_t, std::unique_ptr<NamedTensors>> named_tensors_;
};

}  // namespace

absl::Status LocateItems(FileSystem& fs, CheckpointParts& parts,
                         absl::Span<const uint32_t> entries,
                         uint64_t memory_bytes, std::stop_token stop,
                         OpenProgress* progress, const ItemVisitor& visitor) {
  const std::vector<Item> items = ItemsOf(parts, entries);
  if (items.empty()) return absl::OkStatus();
  if (progress != nullptr) progress->num_items += items.size();
  const bool is_worth_two = items.size() >= kMinItemsForTwoLanes;
  const uint32_t num_lanes =
      is_worth_two && memory_bytes >= 2 * kMinMemoryBytes ? 2 : 1;
  TransferStats stats;
  Shared shared{.ends_of_objects = EndsOfObjects(parts), .mutex = {}};
  return RunLanes(
      fs, num_lanes, num_lanes * kMinMemoryBytes, stop,
      [&](Lane& lane, std::stop_token lane_stop) {
        const size_t first = items.size() * lane.index / num_lanes;
        const size_t last = items.size() * (lane.index + 1) / num_lanes;
        return Locator(fs, parts,
                       absl::MakeConstSpan(items).subspan(first, last - first),
                       progress, visitor, shared)
            .Run(lane, std::move(lane_stop), stats);
      });
}

}  // namespace dcp
