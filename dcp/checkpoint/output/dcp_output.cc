// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/dcp_output.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/checkpoint/output/object_pickle.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/plan/save_plan.h"

namespace dcp {
namespace {

// PyTorch names the first directory of every item this.
constexpr absl::string_view kArchiveName = "archive";

// The most layouts that a file keeps, a kilobyte each.
constexpr size_t kMaxItemLayouts = 1024;

std::string TensorPickle(DType dtype, const Dims& sizes) {
  ValueArena arena;
  return WritePickle(
      MakeTensor(arena, dtype, sizes, /*requires_grad=*/false, "0"));
}

}  // namespace

std::optional<int64_t> ParseDataFileRank(absl::string_view name) {
  int64_t rank;
  if (!absl::ConsumePrefix(&name, "__")) return std::nullopt;
  const size_t middle = name.find('_');
  if (middle == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(0, middle), &rank) || rank < 0) {
    return std::nullopt;
  }
  return rank;
}

// The inputs for making each item's literal bytes again. The bytes are not
// kept, because a checkpoint may have a million items with a kilobyte each.
struct DcpFileBuilder::Items {
  struct Item {
    uint32_t first_part;
    uint32_t padding;        // zeros before the item
    bool as_stored = false;  // only the padding has to be made
    std::vector<uint64_t> storage_bytes;
    std::string pickle;  // for an object
    DType dtype;         // for a tensor, which has no pickle
    Dims sizes;
  };
  std::vector<Item> items;
  // The tensors' layouts by the values that they depend on, because most items
  // in a checkpoint have one of a few shapes. Also the layout of the object
  // used last, because an item's parts are requested one after the other.
  absl::flat_hash_map<std::pair<DType, Dims>,
                      std::unique_ptr<const TorchArchiveLayout>>
      of_tensors;
  size_t current = SIZE_MAX;
  std::optional<TorchArchiveLayout> of_object;

  // Valid until the next call.
  const TorchArchiveLayout& FindLayout(size_t index) {
    const Item& item = items[index];
    if (item.pickle.empty()) return TensorLayoutFor(item);
    if (current != index) {
      of_object.emplace(kArchiveName, item.pickle, item.storage_bytes);
      current = index;
    }
    return *of_object;
  }

  const TorchArchiveLayout& TensorLayoutFor(const Item& item) {
    if (of_tensors.size() == kMaxItemLayouts) of_tensors.clear();
    std::unique_ptr<const TorchArchiveLayout>& layout =
        of_tensors[{item.dtype, item.sizes}];
    if (layout == nullptr) {
      layout = std::make_unique<const TorchArchiveLayout>(
          kArchiveName, TensorPickle(item.dtype, item.sizes),
          item.storage_bytes);
    }
    return *layout;
  }

  std::string Literal(size_t part, absl::Span<const uint32_t> crcs) {
    const auto next = std::upper_bound(
        items.begin(), items.end(), part,
        [](size_t p, const Item& item) { return p < item.first_part; });
    const size_t index = static_cast<size_t>(next - items.begin()) - 1;
    const Item& item = items[index];
    const size_t gap = part - item.first_part;
    std::string bytes(gap == 0 ? item.padding : 0, '\0');
    if (item.as_stored) return bytes;
    bytes += FindLayout(index).Gap(gap, crcs.subspan(item.first_part, gap));
    return bytes;
  }
};

DcpFileBuilder::DcpFileBuilder(std::string name, std::vector<Payload>& payloads)
    : layout_(std::move(name)),
      payloads_(payloads),
      items_(std::make_unique<Items>()) {}

DcpFileBuilder::~DcpFileBuilder() = default;

StorageInfo DcpFileBuilder::AddTensor(Payload payload) {
  Items::Item& item = items_->items.emplace_back();
  item.dtype = payload.dtype;
  item.sizes = payload.box.sizes;
  return AddItem({std::move(payload)});
}

StorageInfo DcpFileBuilder::AddObject(std::string pickle,
                                      std::vector<Payload> tensors) {
  DCP_CHECK(!pickle.empty());
  items_->items.emplace_back().pickle = std::move(pickle);
  return AddItem(std::move(tensors));
}

StorageInfo DcpFileBuilder::AddItemAsStored(Payload bytes) {
  Items::Item& item = items_->items.emplace_back();
  item.as_stored = true;
  item.first_part = static_cast<uint32_t>(layout_.parts().size());
  const uint64_t start = AlignUp(layout_.size(), kStorageAlignment);
  item.padding = static_cast<uint32_t>(start - layout_.size());
  const uint64_t length = bytes.num_bytes();
  layout_.Append(item.padding, length, static_cast<uint32_t>(payloads_.size()));
  payloads_.push_back(std::move(bytes));
  return {.offset = start, .length = length};
}

StorageInfo DcpFileBuilder::AddItem(std::vector<Payload> payloads) {
  Items::Item& item = items_->items.back();
  item.first_part = static_cast<uint32_t>(layout_.parts().size());
  const uint64_t start = AlignUp(layout_.size(), kStorageAlignment);
  item.padding = static_cast<uint32_t>(start - layout_.size());
  for (const Payload& payload : payloads) {
    item.storage_bytes.push_back(payload.num_bytes());
  }
  const TorchArchiveLayout& archive =
      items_->FindLayout(items_->items.size() - 1);
  for (size_t i = 0; i < payloads.size(); ++i) {
    const auto part = static_cast<uint32_t>(layout_.parts().size());
    layout_.Append(archive.gap_length(i) + (i == 0 ? item.padding : 0),
                   item.storage_bytes[i],
                   static_cast<uint32_t>(payloads_.size()),
                   i == 0 ? kNeedsNoPart : part - 1);
    payloads_.push_back(std::move(payloads[i]));
  }
  const size_t last = payloads.size();
  layout_.Append(archive.gap_length(last) + (last == 0 ? item.padding : 0), 0,
                 0, last == 0 ? kNeedsNoPart : item.first_part);
  DCP_CHECK(layout_.size() == start + archive.size());
  return {.offset = start, .length = archive.size()};
}

OutputFile DcpFileBuilder::Finish() && {
  return {.layout = std::move(layout_),
          .literal = [items = std::move(items_)](
                         size_t part, absl::Span<const uint32_t> crcs) {
            return items->Literal(part, crcs);
          }};
}

namespace {

// Adds the chunks of the entries that lie on meshes[m], which is `mesh`.
absl::Status AddChunks(absl::Span<const OutputEntry> entries, const Mesh& mesh,
                       size_t m, absl::Span<const EntryLayout> layouts,
                       std::vector<DcpRank>& ranks) {
  std::vector<uint32_t> entry_of;  // by item
  std::vector<SaveItem> items;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (layouts[i].mesh != m) continue;
    entry_of.push_back(i);
    SaveItem& item = items.emplace_back();
    item.placements = layouts[i].placements;
    if (entries[i].tensor == nullptr) continue;
    item.shape = entries[i].tensor->shape;
    item.element_bytes = ElementSize(entries[i].dtype);
    // The names are known here, so the error can give the name.
    DCP_RETURN_IF_ERROR(Annotate(
        LocalBoxes(item.shape, mesh, item.placements, mesh.Coordinate(0))
            .status(),
        entries[i].fqn));
  }
  DCP_ASSIGN_OR_RETURN(std::vector<SavePlan> plans, PlanSave(items, mesh));
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    for (WriteItem& item : plans[rank]) {
      ranks[rank].push_back({entry_of[item.item], std::move(item.box)});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DcpRank>> ChunksForMeshes(
    absl::Span<const OutputEntry> entries, absl::Span<const Mesh> meshes,
    absl::Span<const EntryLayout> layouts) {
  std::vector<DcpRank> ranks(static_cast<size_t>(meshes[0].num_ranks()));
  for (size_t m = 0; m < meshes.size(); ++m) {
    DCP_CHECK(meshes[m].num_ranks() == meshes[0].num_ranks());
    DCP_RETURN_IF_ERROR(AddChunks(entries, meshes[m], m, layouts, ranks));
  }
  if (meshes.size() == 1) return ranks;
  // Files are in the order of the entries, on any mesh.
  for (DcpRank& rank : ranks) {
    std::sort(rank.begin(), rank.end(),
              [](const DcpChunk& a, const DcpChunk& b) {
                return std::tie(a.entry, a.box.offsets) <
                       std::tie(b.entry, b.box.offsets);
              });
  }
  return ranks;
}

namespace {

// The file that holds the first element that a mapped tensor reads.
uint32_t FirstSourceFile(const MappedTensor& mapped) {
  for (const TensorEntry* source : mapped.sources()) {
    if (!source->locations.empty()) return source->locations[0].item.file;
  }
  return 0;
}

}  // namespace

std::vector<DcpRank> ChunksAsStored(absl::Span<const OutputEntry> entries,
                                    const SourceFiles& files) {
  std::vector<size_t> rank_of_file(files.names().size());
  size_t num_ranks = 1;
  for (size_t i = 0; i < rank_of_file.size(); ++i) {
    const std::optional<int64_t> rank = ParseDataFileRank(files.names()[i]);
    rank_of_file[i] = rank.has_value() && *rank < int64_t{kMaxFiles}
                          ? static_cast<size_t>(*rank)
                          : i;
    num_ranks = std::max(num_ranks, rank_of_file[i] + 1);
  }
  std::vector<DcpRank> ranks(num_ranks);
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const TensorEntry* tensor = entries[i].tensor;
    if (tensor == nullptr) {
      ranks[rank_of_file[entries[i].object->item.file]].push_back(
          {.entry = i, .box = {}});
      continue;
    }
    if (tensor->mapped != nullptr) {
      ranks[rank_of_file[FirstSourceFile(*tensor->mapped)]].push_back(
          {.entry = i, .box = WholeBox(tensor->shape)});
      continue;
    }
    for (size_t c = 0; c < tensor->boxes.size(); ++c) {
      ranks[rank_of_file[tensor->locations[c].item.file]].push_back(
          {i, tensor->boxes[c]});
    }
  }
  return ranks;
}

namespace {

// Builds the files rank by rank, together with the metadata.
class DcpOutputBuilder {
 public:
  DcpOutputBuilder(std::vector<OutputEntry>& entries, SourceFiles& files,
                   const DcpOutputOptions& options, DataFileNames next_name)
      : entries_(entries),
        files_(files),
        options_(options),
        next_name_(next_name) {
    metadata_.has_planner_data = options.flattened;
    metadata_.save_id = options.save_id;
    metadata_.entries.resize(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) StartEntry(i);
  }

  void AddRank(size_t rank, const DcpRank& chunks) {
    // As in PyTorch, a rank that writes nothing still has a file.
    StartFile(rank);
    for (const DcpChunk& chunk : chunks) {
      if (options_.max_file_bytes != 0 && file_->size() > 0 &&
          file_->size() + BytesOf(chunk) > options_.max_file_bytes) {
        output_.files.push_back(std::move(*file_).Finish());
        StartFile(rank);
      }
      AddChunk(chunk);
    }
    output_.files.push_back(std::move(*file_).Finish());
    file_.reset();
  }

  Output Finish() && {
    output_.needs_crcs = true;
    output_.needs_digests = true;
    output_.index_name = std::string(kDcpMetadataName);
    output_.digests_name = DigestsName(options_.save_id);
    output_.index = [metadata = std::move(metadata_)] {
      return WriteDcpMetadata(metadata);
    };
    return std::move(output_);
  }

 private:
  void StartEntry(size_t i) {
    MetadataEntry& entry = metadata_.entries[i];
    entry.fqn = entries_[i].fqn;
    entry.path = entries_[i].path;
    if (options_.flattened && entry.path.empty()) {
      entry.path.push_back(entry.fqn);
    }
    if (entries_[i].tensor != nullptr) {
      entry.value = TensorStorageMetadata{.dtype = entries_[i].dtype,
                                          .size = entries_[i].tensor->shape,
                                          .chunks = {}};
    } else {
      entry.value = BytesStorageMetadata();
    }
  }

  void StartFile(size_t rank) {
    std::string name = next_name_(static_cast<int64_t>(rank));
    metadata_.files.push_back(name);
    file_.emplace(std::move(name), output_.payloads);
  }

  uint64_t BytesOf(const DcpChunk& chunk) const {
    const OutputEntry& entry = entries_[chunk.entry];
    if (entry.tensor == nullptr) return 0;
    return static_cast<uint64_t>(Volume(chunk.box.sizes)) *
           ElementSize(entry.dtype);
  }

  void AddChunk(const DcpChunk& chunk) {
    const OutputEntry& entry = entries_[chunk.entry];
    auto& value = metadata_.entries[chunk.entry].value;
    StorageInfo storage;
    if (entry.tensor != nullptr) {
      storage = file_->AddTensor({.stored = entry.tensor,
                                  .files = &files_,
                                  .box = chunk.box,
                                  .dtype = entry.dtype,
                                  .entry = chunk.entry});
    } else {
      // An object that was not read is copied as the stored item.
      storage = entry.object->unreadable.ok()
                    ? AddObject(*entry.object)
                    : AddItem(*entry.object, chunk.entry);
    }
    storage.file = static_cast<uint32_t>(metadata_.files.size() - 1);
    if (auto* tensor = std::get_if<TensorStorageMetadata>(&value)) {
      tensor->chunks.push_back({.box = chunk.box, .storage = storage});
    } else {
      std::get<BytesStorageMetadata>(value).storage = storage;
    }
  }

  StorageInfo AddItem(const ObjectEntry& object, uint32_t entry) {
    TensorEntry& bytes = output_.own_tensors.emplace_back();
    bytes.dtype = DType::kUInt8;
    bytes.shape.push_back(static_cast<int64_t>(object.item.length));
    bytes.boxes.push_back(WholeBox(bytes.shape));
    ChunkLocation& location = bytes.locations.emplace_back();
    location.item = object.item;
    location.located = true;
    location.payload_offset = object.item.offset;
    Payload payload = WholePayload(bytes, &files_, bytes.dtype);
    payload.entry = entry;
    return file_->AddItemAsStored(std::move(payload));
  }

  StorageInfo AddObject(const ObjectEntry& object) {
    ValueArena arena;
    std::vector<Payload> tensors;
    const Value value =
        RebuildObject(arena, object, [&](const TensorEntry& tensor) {
          tensors.push_back(WholePayload(tensor, &files_, tensor.dtype));
          return tensors.size() - 1;
        });
    return file_->AddObject(WritePickle(value), std::move(tensors));
  }

  std::vector<OutputEntry>& entries_;
  SourceFiles& files_;
  const DcpOutputOptions& options_;
  const DataFileNames next_name_;
  Metadata metadata_;
  Output output_;
  std::optional<DcpFileBuilder> file_;
};

}  // namespace

absl::StatusOr<Output> BuildDcpOutput(std::vector<OutputEntry> entries,
                                      SourceFiles& files,
                                      absl::Span<const DcpRank> ranks,
                                      const DcpOutputOptions& options,
                                      DataFileNames next_name) {
  DcpOutputBuilder builder(entries, files, options, next_name);
  if (options.flattened) {
    std::vector<StatePath> paths;
    for (const OutputEntry& entry : entries) {
      paths.push_back(entry.path.empty() ? StatePath{PathElement(entry.fqn)}
                                         : entry.path);
    }
    DCP_RETURN_IF_ERROR(CheckPaths(paths));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    builder.AddRank(rank, ranks[rank]);
  }
  return std::move(builder).Finish();
}

}  // namespace dcp
