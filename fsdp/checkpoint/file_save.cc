// SPDX-License-Identifier: Apache-2.0
// [Note: one file from many ranks]
//   1. Every rank sends rank 0 a list of items, and the objects' values.
//   2. Rank 0 checks that together they are whole tensors, lays out the file,
//      and tells each rank which items it will read from that rank, in file
//      order.
//   3. Rank 0 writes. The parts of a window that a rank must send follow from
//      the boxes (TensorAssembly), so each rank sends one byte stream, which
//      rank 0 reads piece by piece (RankPull).
//   4. All ranks agree on the result.
#include "fsdp/checkpoint/file_save.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/assembly/tensor_assembly.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/metadata_builder.h"
#include "dcp/checkpoint/save/save_exchange.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "fsdp/checkpoint/ranks/rank_pull.h"

namespace fsdp {
namespace {

uint64_t NumBytes(const dcp::Box& box, dcp::DType dtype) {
  return static_cast<uint64_t>(dcp::Volume(box.sizes)) *
         dcp::ElementSize(dtype);
}

// Where rank 0 gets a tensor's part from: local memory, or another rank's
// stream.
struct PartOrigin {
  size_t rank = 0;
  size_t item = 0;  // index among that rank's items
  dcp::TensorSource* own = nullptr;
  RankPull* pull = nullptr;
};

// Memory for the tensor that is being assembled; one at a time.
struct AssemblyBuffers {
  std::vector<uint8_t> window;
  std::vector<uint8_t> stretch;
};

// One whole tensor, assembled from parts. It is read in order.
class AssembledSource final : public dcp::TensorSource {
 public:
  AssembledSource(dcp::TensorAssembly assembly, std::vector<PartOrigin> parts,
                  AssemblyBuffers& buffers)
      : assembly_(std::move(assembly)),
        parts_(std::move(parts)),
        buffers_(buffers) {}

  absl::Status Fill(uint64_t offset, dcp::MutableByteSpan dst) override {
    while (!dst.empty()) {
      if (offset == end_) DCP_RETURN_IF_ERROR(NextWindow());
      const uint64_t begin = assembly_.WindowAt(num_windows_ - 1).begin;
      DCP_CHECK(offset >= begin && offset < end_, "offset=", offset);
      const uint64_t length = std::min<uint64_t>(dst.size(), end_ - offset);
      std::copy_n(buffers_.window.data() + (offset - begin), length,
                  dst.data());
      offset += length;
      dst = dst.subspan(length);
    }
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

  std::vector<PartOrigin>& parts() { return parts_; }

 private:
  absl::Status NextWindow() {
    const uint64_t window = num_windows_++;
    const dcp::TensorAssembly::Stretch whole = assembly_.WindowAt(window);
    end_ = whole.end;
    buffers_.window.resize(whole.length());
    for (size_t i = 0; i < parts_.size(); ++i) {
      const dcp::TensorAssembly::Stretch needed = assembly_.Needed(window, i);
      if (needed.length() == 0) continue;
      buffers_.stretch.resize(needed.length());
      DCP_RETURN_IF_ERROR(Get(parts_[i], needed.begin, buffers_.stretch));
      assembly_.Place(window, i, buffers_.stretch, buffers_.window);
    }
    return absl::OkStatus();
  }

  static absl::Status Get(const PartOrigin& part, uint64_t begin,
                          dcp::MutableByteSpan dst) {
    if (part.pull != nullptr) return part.pull->Read(dst);
    DCP_RETURN_IF_ERROR(part.own->Fill(begin, dst));
    return part.own->Flush();
  }

  const dcp::TensorAssembly assembly_;
  std::vector<PartOrigin> parts_;
  AssemblyBuffers& buffers_;
  uint64_t num_windows_ = 0;  // assembled so far
  uint64_t end_ = 0;          // end of the last window
};

// The bytes that a rank sends, in the order in which rank 0 assembles windows.
class PartSender {
 public:
  // `items` are tensor numbers in `state`, in file order.
  PartSender(const dcp::SaveState& state, const std::vector<size_t>& items) {
    for (const size_t item : items) {
      const dcp::SaveTensor& tensor = state.tensors[item];
      num_bytes_ += NumBytes(tensor.box, tensor.dtype);
      if (groups_.empty() || groups_.back().name != tensor.fqn) {
        groups_.push_back({tensor.fqn, tensor.shape, tensor.dtype, {}, {}});
      }
      groups_.back().boxes.push_back(tensor.box);
      groups_.back().sources.push_back(tensor.source);
    }
  }

  uint64_t num_bytes() const { return num_bytes_; }

  // Fills `dst` with the stream's next bytes.
  absl::Status Fill(dcp::MutableByteSpan dst) {
    std::vector<dcp::TensorSource*> touched;
    absl::Status status;
    while (status.ok() && !dst.empty()) {
      if (stretch_.length() == 0) NextStretch();
      const uint64_t length = std::min<uint64_t>(dst.size(), stretch_.length());
      dcp::TensorSource* const source = groups_[group_].sources[part_];
      touched.push_back(source);
      status = dcp::Annotate(source->Fill(stretch_.begin, dst.first(length)),
                             groups_[group_].name);
      stretch_.begin += length;
      dst = dst.subspan(length);
    }
    for (dcp::TensorSource* source : touched) status.Update(source->Flush());
    return status;
  }

 private:
  struct Group {
    std::string name;
    dcp::Dims shape;
    dcp::DType dtype;
    std::vector<dcp::Box> boxes;
    std::vector<dcp::TensorSource*> sources;
  };

  // Moves to the next stretch that is not empty; there is one.
  void NextStretch() {
    while (stretch_.length() == 0) {
      if (assembly_ == nullptr) {
        Group& group = groups_[group_];
        assembly_ = std::make_unique<dcp::TensorAssembly>(
            group.shape, group.dtype, group.boxes);
        window_ = 0;
        part_ = 0;
      } else if (++part_ == assembly_->num_parts()) {
        part_ = 0;
        if (++window_ == assembly_->num_windows()) {
          assembly_.reset();
          ++group_;
          DCP_CHECK(group_ < groups_.size(), "groups=", groups_.size());
          continue;
        }
      }
      stretch_ = assembly_->Needed(window_, part_);
    }
  }

  std::vector<Group> groups_;  // the tensors
  uint64_t num_bytes_ = 0;
  // The position in the stream.
  size_t group_ = 0;
  std::unique_ptr<dcp::TensorAssembly> assembly_;  // for the current group
  uint64_t window_ = 0;
  size_t part_ = 0;
  dcp::TensorAssembly::Stretch stretch_;  // the rest of the current one
};

// Sent by rank 0 to a rank: "<bytes of a message> <item>,<item>,...".
struct Order {
  uint64_t window_bytes = 0;
  std::vector<size_t> items = {};
};

std::string Encode(const Order& order) {
  return absl::StrCat(order.window_bytes, " ", absl::StrJoin(order.items, ","));
}

absl::StatusOr<Order> DecodeOrder(const std::string& text,
                                  const dcp::SaveState& state) {
  Order order;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  bool good = absl::SimpleAtoi(halves.first, &order.window_bytes) &&
              order.window_bytes > 0;
  for (const absl::string_view number :
       absl::StrSplit(halves.second, ',', absl::SkipEmpty())) {
    size_t& item = order.items.emplace_back();
    good =
        absl::SimpleAtoi(number, &item) && item < state.tensors.size() && good;
  }
  if (good) return order;
  return absl::DataLossError(absl::StrCat("rank 0 asks for the tensors '", text,
                                          "', but this rank has ",
                                          state.tensors.size()));
}

// Rank 0's side.
class Gatherer {
 public:
  Gatherer(dcp::FileSystem& fs, const std::string& path,
           const dcp::SaveState& own, ProcessGroupCoordinator& coordinator,
           const dcp::SaveOptions& options)
      : fs_(fs),
        path_(path),
        own_(own),
        coordinator_(coordinator),
        options_(options),
        num_ranks_(static_cast<size_t>(coordinator.num_ranks())) {}

  // Plans the file from the ranks' lists. Returns the text to send to each
  // rank.
  absl::StatusOr<std::vector<std::string>> Plan(
      const std::vector<std::string>& offers,
      const std::vector<std::string>& objects);

  absl::Status Write() {
    dcp::SaveOptions options = options_;
    options.memory_bytes =
        num_ranks_ == 1 ? options.memory_bytes : options.memory_bytes / 2;
    options.memory_bytes =
        std::min(std::max(options.memory_bytes, dcp::kMinMemoryBytes),
                 dcp::kMinMemoryBytes + 4 * num_bytes_);
    const absl::Status written = file_->Write(options);
    for (const auto& pull : pulls_) {
      if (pull != nullptr && !written.ok()) pull->Stop();
    }
    return written;
  }

 private:
  // The messages, two for each other rank, get half of the memory.
  uint64_t WindowBytes() const {
    const uint64_t num_others = std::max<uint64_t>(num_ranks_ - 1, 1);
    return std::clamp<uint64_t>(options_.memory_bytes / 4 / num_others,
                                uint64_t{64} << 10, dcp::kBlockBytes);
  }

  // A chunk's rank and item: the file number is the rank.
  PartOrigin FindOrigin(const dcp::StorageInfo& storage) {
    const PartOrigin origin{.rank = storage.file, .item = storage.offset};
    if (origin.rank != 0) return origin;
    return {.rank = 0,
            .item = origin.item,
            .own = own_.tensors[origin.item].source};
  }

  absl::Status ReadObjects(const std::vector<std::string>& objects);
  void AddTensor(const dcp::MetadataEntry& entry,
                 const dcp::TensorStorageMetadata& tensor);
  void AddObject(const dcp::MetadataEntry& entry,
                 const dcp::StorageInfo& storage);
  std::vector<std::string> GiveOrders();

  dcp::FileSystem& fs_;
  const std::string& path_;
  const dcp::SaveState& own_;
  ProcessGroupCoordinator& coordinator_;
  const dcp::SaveOptions& options_;
  const size_t num_ranks_;
  dcp::SaveState whole_;
  uint64_t num_bytes_ = 0;
  std::vector<uint64_t> num_bytes_of_;            // sent, by rank
  std::vector<std::unique_ptr<RankPull>> pulls_;  // by rank; may be null
  AssemblyBuffers buffers_;
  // Parallel to the tensors of `whole_`; null if rank 0 has all of a tensor.
  std::vector<std::unique_ptr<AssembledSource>> sources_;
  dcp::ValueArena arena_;
  absl::flat_hash_map<std::string, dcp::Value>
      values_;  // values of other ranks' objects
  std::unique_ptr<dcp::StateFile> file_;
};

absl::StatusOr<std::vector<std::string>> Gatherer::Plan(
    const std::vector<std::string>& offers,
    const std::vector<std::string>& objects) {
  dcp::MetadataBuilder merged;
  for (const std::string& offer : offers) {
    DCP_ASSIGN_OR_RETURN(dcp::Metadata metadata,
                         dcp::ParseDcpMetadata(dcp::AsBytes(offer)));
    DCP_RETURN_IF_ERROR(merged.Merge(std::move(metadata)));
  }
  DCP_RETURN_IF_ERROR(merged.CheckWhole());
  DCP_RETURN_IF_ERROR(ReadObjects(objects));
  num_bytes_of_.resize(num_ranks_);
  for (const dcp::MetadataEntry& entry : merged.metadata().entries) {
    if (const auto* tensor =
            std::get_if<dcp::TensorStorageMetadata>(&entry.value)) {
      AddTensor(entry, *tensor);
    } else {
      AddObject(entry,
                std::get<dcp::BytesStorageMetadata>(entry.value).storage);
    }
  }
  DCP_ASSIGN_OR_RETURN(file_, dcp::StateFile::Plan(fs_, path_, whole_));
  return GiveOrders();
}

absl::Status Gatherer::ReadObjects(const std::vector<std::string>& objects) {
  for (const std::string& pickle : objects) {
    if (pickle.empty()) continue;
    DCP_ASSIGN_OR_RETURN(
        const dcp::PickleResult result,
        dcp::ReadPickle(dcp::AsBytes(pickle),
                        {.allow_global = dcp::IsStateDictGlobal}, arena_));
    const absl::Span<const dcp::Value> items = result.root.items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      values_.emplace(items[i].text(), items[i + 1]);
    }
  }
  return absl::OkStatus();
}

void Gatherer::AddTensor(const dcp::MetadataEntry& entry,
                         const dcp::TensorStorageMetadata& tensor) {
  std::vector<dcp::Box> boxes;
  std::vector<PartOrigin> parts;
  absl::flat_hash_set<dcp::Dims> begins;
  for (const dcp::ChunkStorageMetadata& chunk : tensor.chunks) {
    const uint64_t num_bytes = NumBytes(chunk.box, tensor.dtype);
    if (num_bytes == 0 || !begins.insert(chunk.box.offsets).second) continue;
    boxes.push_back(chunk.box);
    parts.push_back(FindOrigin(chunk.storage));
    num_bytes_ += num_bytes;
    if (parts.back().rank != 0) {
      num_bytes_of_[parts.back().rank] += num_bytes;
    }
  }
  dcp::TensorSource* source = nullptr;
  std::unique_ptr<AssembledSource> assembled;
  if (parts.size() == 1 && parts[0].own != nullptr) {
    source = parts[0].own;
  } else {
    assembled = std::make_unique<AssembledSource>(
        dcp::TensorAssembly(tensor.size, tensor.dtype, std::move(boxes)),
        std::move(parts), buffers_);
    source = assembled.get();
  }
  sources_.push_back(std::move(assembled));
  whole_.tensors.push_back({.fqn = entry.fqn,
                            .path = entry.path,
                            .dtype = tensor.dtype,
                            .shape = tensor.size,
                            .box = dcp::WholeBox(tensor.size),
                            .source = source});
}

void Gatherer::AddObject(const dcp::MetadataEntry& entry,
                         const dcp::StorageInfo& storage) {
  const dcp::Value value =
      storage.file == 0
          ? own_.objects[storage.offset - own_.tensors.size()].value
          : values_.at(entry.fqn);
  whole_.objects.push_back(
      {.fqn = entry.fqn, .path = entry.path, .value = value});
}

std::vector<std::string> Gatherer::GiveOrders() {
  std::vector<Order> orders(num_ranks_, {.window_bytes = WindowBytes()});
  pulls_.resize(num_ranks_);
  for (size_t rank = 1; rank < num_ranks_; ++rank) {
    if (num_bytes_of_[rank] == 0) continue;
    pulls_[rank] = std::make_unique<RankPull>(
        coordinator_, static_cast<int64_t>(rank), num_bytes_of_[rank],
        orders[rank].window_bytes);
  }
  for (const size_t tensor : file_->order()) {
    if (sources_[tensor] == nullptr) continue;
    for (PartOrigin& part : sources_[tensor]->parts()) {
      if (part.rank == 0) continue;
      part.pull = pulls_[part.rank].get();
      orders[part.rank].items.push_back(part.item);
    }
  }
  std::vector<std::string> texts;
  for (const Order& order : orders) texts.push_back(Encode(order));
  return texts;
}

// This rank's object values, for rank 0: a pickled {name: value}.
std::string ObjectsText(const dcp::SaveState& state) {
  dcp::ValueArena arena;
  std::vector<dcp::Value> items;
  for (const dcp::SaveObject& object : state.objects) {
    items.push_back(arena.Str(object.fqn));
    items.push_back(object.value);
  }
  return dcp::WritePickle(arena.Dict(items));
}

absl::Status Serve(const dcp::SaveState& state, const Order& order,
                   ProcessGroupCoordinator& coordinator) {
  PartSender sender(state, order.items);
  return ServeRankPull(
      coordinator, sender.num_bytes(), order.window_bytes,
      [&](dcp::MutableByteSpan dst) { return sender.Fill(dst); });
}

}  // namespace

absl::Status SaveFile(dcp::FileSystem& fs, const std::string& path,
                      const dcp::SaveState& state,
                      ProcessGroupCoordinator& coordinator,
                      const dcp::SaveOptions& options) {
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator, state.status));
  const bool writes = coordinator.rank() == 0;
  DCP_ASSIGN_OR_RETURN(
      const std::vector<std::string> offers,
      coordinator.Gather(dcp::WriteDcpMetadata(dcp::OfferedItems(state))));
  DCP_ASSIGN_OR_RETURN(
      const std::vector<std::string> objects,
      coordinator.Gather(writes ? std::string() : ObjectsText(state)));
  Gatherer gatherer(fs, path, state, coordinator, options);
  absl::StatusOr<std::vector<std::string>> orders = std::vector<std::string>();
  if (writes) orders = gatherer.Plan(offers, objects);
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator, orders.status()));
  DCP_ASSIGN_OR_RETURN(const std::string text,
                       coordinator.Scatter(*std::move(orders)));
  const absl::StatusOr<Order> order = DecodeOrder(text, state);
  DCP_RETURN_IF_ERROR(dcp::Agree(coordinator, order.status()));
  const absl::Status ended =
      writes ? gatherer.Write() : Serve(state, *order, coordinator);
  // If this rank stopped because another one gave up, that one reports why.
  DCP_RETURN_IF_ERROR(dcp::Agree(
      coordinator, absl::IsAborted(ended) ? absl::OkStatus() : ended));
  return ended;
}

}  // namespace fsdp
