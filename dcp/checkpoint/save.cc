// Three exchanges, each of text that a rank could have read from a file:
//   1. every rank sends its items as the .metadata of a checkpoint that has
//      them all; rank 0 decides who writes which, and which file they go to
//   2. every rank gets the numbers of the items it keeps and its file's name,
//      and writes the file
//   3. every rank sends the .metadata of what it wrote and its digests; rank 0
//      merges them and commits
// After each step all ranks agree that it succeeded. If not, rank 0 removes
// the files of all: none of them is being written any more then, and only
// rank 0 knows how far the commit came.
#include "dcp/checkpoint/save.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/commit.h"
#include "dcp/checkpoint/dcp_opener.h"
#include "dcp/checkpoint/dcp_output.h"
#include "dcp/checkpoint/image_transfer.h"
#include "dcp/checkpoint/save_id.h"
#include "dcp/format/dcp_metadata.h"
#include "dcp/format/pickle_writer.h"
#include "dcp/plan/chunk_index.h"

namespace dcp {
namespace {

// Items are numbered: first the tensors of a SaveState, then its objects.
constexpr absl::string_view kPlannedFile = "planned";

std::string ItemKey(absl::string_view fqn, const Box& box) {
  return absl::StrCat(fqn, "\n", absl::StrJoin(box.offsets, ","), "\n",
                      absl::StrJoin(box.sizes, ","));
}

MetadataEntry EntryOf(const SaveTensor& tensor) {
  MetadataEntry entry{.fqn = tensor.fqn, .path = tensor.path, .value = {}};
  entry.value = TensorStorageMetadata{
      .dtype = tensor.dtype, .size = tensor.shape, .chunks = {}};
  return entry;
}

// Collects chunks and objects into a Metadata, one entry per name.
class MetadataBuilder {
 public:
  Metadata& metadata() { return metadata_; }

  void AddChunk(const SaveTensor& tensor, const StorageInfo& storage) {
    const auto [it, is_new] =
        by_name_.emplace(tensor.fqn, metadata_.entries.size());
    if (is_new) metadata_.entries.push_back(EntryOf(tensor));
    std::get<TensorStorageMetadata>(metadata_.entries[it->second].value)
        .chunks.push_back({.box = tensor.box, .storage = storage});
  }

  void AddObject(const SaveObject& object, const StorageInfo& storage) {
    by_name_.emplace(object.fqn, metadata_.entries.size());
    metadata_.entries.push_back({.fqn = object.fqn,
                                 .path = object.path,
                                 .value = BytesStorageMetadata{storage}});
  }

  // Adds what another rank wrote.
  absl::Status Merge(Metadata other) {
    const auto base = static_cast<uint32_t>(metadata_.files.size());
    for (std::string& file : other.files) {
      metadata_.files.push_back(std::move(file));
    }
    for (MetadataEntry& entry : other.entries) {
      if (auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value)) {
        for (auto& chunk : tensor->chunks) chunk.storage.file += base;
      } else {
        std::get<BytesStorageMetadata>(entry.value).storage.file += base;
      }
      DCP_RETURN_IF_ERROR(MergeEntry(std::move(entry)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MergeEntry(MetadataEntry entry) {
    const auto [it, is_new] =
        by_name_.emplace(entry.fqn, metadata_.entries.size());
    if (is_new) {
      metadata_.entries.push_back(std::move(entry));
      return absl::OkStatus();
    }
    MetadataEntry& mine = metadata_.entries[it->second];
    auto* from = std::get_if<TensorStorageMetadata>(&entry.value);
    auto* to = std::get_if<TensorStorageMetadata>(&mine.value);
    if ((from == nullptr) != (to == nullptr)) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry.fqn, " is a tensor on one rank and an object on another"));
    }
    if (from == nullptr) return absl::OkStatus();
    if (from->dtype != to->dtype || from->size != to->size) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry.fqn, " is ", TorchName(to->dtype), " ", ShapeToString(to->size),
          " on one rank and ", TorchName(from->dtype), " ",
          ShapeToString(from->size), " on another"));
    }
    std::move(from->chunks.begin(), from->chunks.end(),
              std::back_inserter(to->chunks));
    return absl::OkStatus();
  }

  Metadata metadata_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

// One item as rank 0 sees it.
struct Offer {
  std::string key;
  uint64_t bytes;
};

// The items of a rank in their order, from the metadata that it sent; an
// item's number travels as the offset of its storage.
std::vector<Offer> OffersOf(const Metadata& metadata) {
  std::vector<std::pair<uint64_t, Offer>> numbered;
  for (const MetadataEntry& entry : metadata.entries) {
    if (auto* object = std::get_if<BytesStorageMetadata>(&entry.value)) {
      numbered.push_back({object->storage.offset,
                          {ItemKey(entry.fqn, Box()), object->storage.length}});
      continue;
    }
    for (const auto& chunk :
         std::get<TensorStorageMetadata>(entry.value).chunks) {
      numbered.push_back(
          {chunk.storage.offset,
           {ItemKey(entry.fqn, chunk.box), chunk.storage.length}});
    }
  }
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Offer> offers;
  for (auto& [number, offer] : numbered) offers.push_back(std::move(offer));
  return offers;
}

// What each rank keeps: an item that several offer goes to that one of them
// which has the fewest bytes so far.
std::vector<std::vector<size_t>> Assign(
    const std::vector<std::vector<Offer>>& offers) {
  absl::flat_hash_map<absl::string_view, std::vector<std::pair<size_t, size_t>>>
      holders;
  std::vector<absl::string_view> order;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t i = 0; i < offers[rank].size(); ++i) {
      auto& of_key = holders[offers[rank][i].key];
      if (of_key.empty()) order.push_back(offers[rank][i].key);
      of_key.emplace_back(rank, i);
    }
  }
  std::vector<uint64_t> bytes(offers.size());
  std::vector<std::vector<size_t>> kept(offers.size());
  for (const absl::string_view key : order) {
    const auto& of_key = holders[key];
    const auto& [rank, item] = *std::min_element(
        of_key.begin(), of_key.end(), [&](const auto& a, const auto& b) {
          return bytes[a.first] < bytes[b.first];
        });
    bytes[rank] += offers[rank][item].bytes;
    kept[rank].push_back(item);
  }
  for (auto& items : kept) std::sort(items.begin(), items.end());
  return kept;
}

// What the types of a SaveState do not rule out. All ranks together are
// checked by rank 0.
absl::Status CheckState(const SaveState& state) {
  absl::flat_hash_map<absl::string_view, const SaveTensor*> by_name;
  absl::flat_hash_set<std::pair<absl::string_view, Dims>> begins;
  for (const SaveTensor& tensor : state.tensors) {
    if (!CheckedVolume(tensor.shape).has_value() ||
        !Contains(WholeBox(tensor.shape), tensor.box)) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.fqn, ": ", ToString(tensor.box),
                       " is not inside ", ShapeToString(tensor.shape)));
    }
    const SaveTensor& first =
        *by_name.emplace(tensor.fqn, &tensor).first->second;
    if (first.dtype != tensor.dtype || first.shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.fqn, " is listed as ", TorchName(first.dtype), " ",
          ShapeToString(first.shape), " and as ", TorchName(tensor.dtype), " ",
          ShapeToString(tensor.shape)));
    }
    if (!begins.emplace(tensor.fqn, tensor.box.offsets).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.fqn, ": two parts begin where ",
                       ToString(tensor.box), " does"));
    }
  }
  absl::flat_hash_set<absl::string_view> objects;
  for (const SaveObject& object : state.objects) {
    if (by_name.contains(object.fqn) || !objects.insert(object.fqn).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(object.fqn, " is listed twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWhole(const Metadata& metadata) {
  for (const MetadataEntry& entry : metadata.entries) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value);
    if (tensor == nullptr) continue;
    std::vector<Box> boxes;
    absl::flat_hash_set<std::string> seen;
    for (const auto& chunk : tensor->chunks) {
      if (seen.insert(ItemKey("", chunk.box)).second) {
        boxes.push_back(chunk.box);
      }
    }
    const absl::Status covered = CheckCoverage(tensor->size, boxes);
    if (!covered.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.fqn, ": ", covered.message()));
    }
  }
  return absl::OkStatus();
}

// What a rank is told: "<file name>\n<number>,<number>,...".
struct Order {
  std::string file_name;
  std::vector<size_t> items;
};

std::string EncodeOrder(const Order& order) {
  return absl::StrCat(order.file_name, "\n", absl::StrJoin(order.items, ","));
}

absl::StatusOr<Order> DecodeOrder(absl::string_view text, size_t num_items) {
  const std::pair<std::string, std::string> halves =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  Order order{.file_name = halves.first, .items = {}};
  for (absl::string_view number :
       absl::StrSplit(halves.second, ',', absl::SkipEmpty())) {
    size_t item = 0;
    if (!absl::SimpleAtoi(number, &item) || item >= num_items) {
      return absl::DataLossError(
          absl::StrCat("told to write item '", number, "' of ", num_items));
    }
    order.items.push_back(item);
  }
  return order;
}

class Saver {
 public:
  Saver(FileSystem& fs, absl::string_view path, const SaveState& state,
        Coordinator& coordinator, const SaveOptions& options)
      : fs_(fs),
        path_(path),
        state_(state),
        coordinator_(coordinator),
        options_(options),
        is_first_(coordinator.rank() == 0) {}

  absl::Status Run() {
    DCP_ASSIGN_OR_RETURN(const Order order, Exchange());
    const absl::Status written = WriteFile(order);
    DCP_RETURN_IF_ERROR(Agree(coordinator_, written));
    DCP_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        coordinator_.Gather(absl::StrCat(
            WriteDigests(digests_), WriteDcpMetadata(written_.metadata()))));
    const absl::Status committed = is_first_ ? Commit(all) : absl::OkStatus();
    return Agree(coordinator_, committed);
  }

 private:
  // Steps 1 and 2.
  absl::StatusOr<Order> Exchange() {
    DCP_RETURN_IF_ERROR(Agree(coordinator_, CheckState(state_)));
    DCP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         coordinator_.Gather(WriteDcpMetadata(Offered())));
    std::vector<std::string> orders(
        is_first_ ? static_cast<size_t>(coordinator_.num_ranks()) : 0);
    const absl::Status planned =
        is_first_ ? Plan(all, orders) : absl::OkStatus();
    DCP_RETURN_IF_ERROR(Agree(coordinator_, planned));
    DCP_ASSIGN_OR_RETURN(const std::string order,
                         coordinator_.Scatter(std::move(orders)));
    if (!is_first_) destination_ = Destination::Attach(fs_, path_);
    return DecodeOrder(order, state_.tensors.size() + state_.objects.size());
  }

  Metadata Offered() const {
    MetadataBuilder builder;
    builder.metadata().files.emplace_back(kPlannedFile);
    uint64_t number = 0;
    for (const SaveTensor& tensor : state_.tensors) {
      const uint64_t bytes = static_cast<uint64_t>(Volume(tensor.box.sizes)) *
                             ElementSize(tensor.dtype);
      builder.AddChunk(tensor, {.offset = number++, .length = bytes});
    }
    for (const SaveObject& object : state_.objects) {
      builder.AddObject(object, {.offset = number++, .length = 1});
    }
    return std::move(builder.metadata());
  }

  absl::Status Plan(const std::vector<std::string>& all,
                    std::vector<std::string>& orders) {
    std::vector<std::vector<Offer>> offers;
    MetadataBuilder merged;
    for (const std::string& bytes : all) {
      DCP_ASSIGN_OR_RETURN(Metadata metadata, ParseDcpMetadata(AsBytes(bytes)));
      offers.push_back(OffersOf(metadata));
      DCP_RETURN_IF_ERROR(merged.Merge(std::move(metadata)));
    }
    DCP_RETURN_IF_ERROR(CheckWhole(merged.metadata()));
    DCP_ASSIGN_OR_RETURN(
        destination_,
        Destination::Plan(fs_, path_, Destination::Kind::kDcpDirectory,
                          options_.overwrite));
    DCP_RETURN_IF_ERROR(destination_->Begin());
    const std::vector<std::vector<size_t>> kept = Assign(offers);
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      const std::string name =
          destination_->NextDataFileName(static_cast<int64_t>(rank));
      destination_->Created(name);
      orders[rank] = EncodeOrder({name, kept[rank]});
    }
    return absl::OkStatus();
  }

  absl::Status WriteFile(const Order& order) {
    Output output;
    output.needs_crcs = true;
    output.needs_digests = true;
    written_.metadata().files.push_back(order.file_name);
    DcpFileBuilder file(order.file_name, output.payloads);
    for (const size_t item : order.items) {
      if (item < state_.tensors.size()) {
        const SaveTensor& tensor = state_.tensors[item];
        written_.AddChunk(tensor, file.AddTensor({.source = tensor.source,
                                                  .box = tensor.box,
                                                  .dtype = tensor.dtype}));
      } else {
        const SaveObject& object = state_.objects[item - state_.tensors.size()];
        written_.AddObject(object,
                           file.AddObject(WritePickle(object.value), {}));
      }
    }
    output.files.push_back(std::move(file).Finish());
    TransferStats own_stats;
    DCP_ASSIGN_OR_RETURN(
        digests_, TransferImages(
                      fs_, output, *destination_,
                      {.direct = options_.direct,
                       .num_lanes = 1,
                       .memory_bytes = options_.memory_bytes,
                       .stop = options_.stop},
                      options_.stats != nullptr ? *options_.stats : own_stats));
    return absl::OkStatus();
  }

  // Step 3, on rank 0.
  absl::Status Commit(const std::vector<std::string>& all) {
    MetadataBuilder merged;
    std::vector<ChunkDigest> digests;
    for (const std::string& text : all) {
      DCP_ASSIGN_OR_RETURN(const size_t length, DigestsLength(text));
      DCP_ASSIGN_OR_RETURN(
          std::vector<ChunkDigest> some,
          ParseDigests(absl::string_view(text).substr(0, length)));
      std::move(some.begin(), some.end(), std::back_inserter(digests));
      DCP_ASSIGN_OR_RETURN(
          Metadata metadata,
          ParseDcpMetadata(AsBytes(absl::string_view(text).substr(length))));
      DCP_RETURN_IF_ERROR(merged.Merge(std::move(metadata)));
    }
    merged.metadata().save_id = NewSaveId();
    return destination_->Commit(
        kDcpMetadataName, WriteDcpMetadata(merged.metadata()),
        DigestsName(merged.metadata().save_id), digests);
  }

  // The digests end with a line of their own, the pickle follows.
  static absl::StatusOr<size_t> DigestsLength(absl::string_view text) {
    const size_t end = text.find("\nend ");
    const size_t newline =
        end == absl::string_view::npos ? end : text.find('\n', end + 1);
    if (newline == absl::string_view::npos) {
      return absl::DataLossError("a rank sent no digests");
    }
    return newline + 1;
  }

  FileSystem& fs_;
  const std::string path_;
  const SaveState& state_;
  Coordinator& coordinator_;
  const SaveOptions& options_;
  const bool is_first_;
  std::unique_ptr<Destination> destination_;
  MetadataBuilder written_;
  std::vector<ChunkDigest> digests_;
};

}  // namespace

absl::Status Save(FileSystem& fs, absl::string_view path,
                  const SaveState& state, Coordinator& coordinator,
                  const SaveOptions& options) {
  return Saver(fs, path, state, coordinator, options).Run();
}

}  // namespace dcp
