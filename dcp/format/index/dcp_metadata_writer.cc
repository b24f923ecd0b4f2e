// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/dcp_metadata_writer.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "dcp/format/pickle/metadata_modules.h"
#include "dcp/format/pickle/pickle_writer.h"

namespace dcp {
namespace {

constexpr absl::string_view kMetadataVersion = "1.0.0";
// Python's pickler writes dicts and lists in batches of this many.
constexpr size_t kBatch = 1000;

// Writes the index's objects, from the outside in.
class Writer {
 public:
  explicit Writer(const Metadata& metadata) : metadata_(metadata) {}

  std::string Write() {
    Begin(kMetadataModule, "Metadata");
    out_.Str("state_dict_metadata");
    WriteState();
    out_.Str("planner_data");
    WritePlanner();
    out_.Str("storage_data");
    WriteStorage();
    out_.Str("storage_meta");
    WriteStorageMeta();
    Attribute("version", kMetadataVersion);
    End();
    return out_.Finish();
  }

 private:
  // Begins an object. The attributes follow, until End().
  void Begin(absl::string_view module, absl::string_view name) {
    out_.Global(module, name);
    out_.EmptyTuple();
    out_.NewObj();
    out_.EmptyDict();
    out_.Mark();
  }

  void End() {
    out_.SetItems();
    out_.Build();
  }

  void Attribute(absl::string_view name, absl::string_view value) {
    out_.Str(name);
    out_.Str(value);
  }

  void Attribute(absl::string_view name, uint64_t value) {
    out_.Str(name);
    out_.Int(static_cast<int64_t>(value));
  }

  void Attribute(absl::string_view name, absl::Span<const int64_t> value) {
    out_.Str(name);
    WriteSize(value);
  }

  // The items in a dict or a list are written in batches, between marks. Called
  // before each item and after the last one.
  void NextItem(size_t i) {
    if (i % kBatch != 0) return;
    if (i != 0) out_.SetItems();
    out_.Mark();
  }

  void EndItems(size_t num_items) {
    if (num_items != 0) out_.SetItems();
  }

  void WriteSize(absl::Span<const int64_t> dims) {
    out_.Global("torch", "Size");
    if (dims.empty()) {
      out_.EmptyTuple();
    } else {
      if (dims.size() > 3) out_.Mark();
      for (const int64_t dim : dims) out_.Int(dim);
      if (dims.size() == 1) out_.Tuple1();
      if (dims.size() == 2) out_.Tuple2();
      if (dims.size() == 3) out_.Tuple3();
      if (dims.size() > 3) out_.Tuple();
    }
    out_.Tuple1();
    out_.Reduce();
  }

  // Written once and then fetched: the value is the same for every tensor.
  void WriteShared(std::optional<uint32_t>& slot, absl::string_view module,
                   absl::string_view name, const PathElement& argument) {
    if (slot.has_value()) {
      out_.Get(*slot);
      return;
    }
    out_.Global(module, name);
    if (const auto* text = std::get_if<std::string>(&argument)) {
      out_.Str(*text);
    } else {
      out_.Int(std::get<int64_t>(argument));
    }
    out_.Tuple1();
    out_.Reduce();
    slot = out_.Put();
  }

  void WriteProperties(DType dtype) {
    out_.Global(kMetadataModule, "TensorProperties");
    out_.EmptyTuple();
    out_.NewObj();
    out_.Mark();
    out_.Global("torch", TorchName(dtype));
    WriteShared(layout_slot_, "torch.serialization", "_get_layout",
                std::string("torch.strided"));
    out_.Bool(false);  // requires_grad
    WriteShared(format_slot_, kMetadataModule, "_MEM_FORMAT_ENCODING",
                int64_t{0});
    out_.Bool(false);  // pin_memory
    out_.Tuple();
    out_.Build();
  }

  void WriteTensor(const TensorStorageMetadata& tensor) {
    Begin(kMetadataModule, "TensorStorageMetadata");
    out_.Str("properties");
    WriteProperties(tensor.dtype);
    Attribute("size", tensor.size);
    out_.Str("chunks");
    out_.EmptyList();
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      if (i % kBatch == 0) {
        if (i != 0) out_.Appends();
        out_.Mark();
      }
      Begin(kMetadataModule, "ChunkStorageMetadata");
      Attribute("offsets", tensor.chunks[i].box.offsets);
      Attribute("sizes", tensor.chunks[i].box.sizes);
      End();
    }
    if (!tensor.chunks.empty()) out_.Appends();
    End();
  }

  void WriteState() {
    out_.EmptyDict();
    for (size_t i = 0; i < metadata_.entries.size(); ++i) {
      const MetadataEntry& entry = metadata_.entries[i];
      NextItem(i);
      out_.Str(entry.fqn);
      if (const auto* tensor =
              std::get_if<TensorStorageMetadata>(&entry.value)) {
        WriteTensor(*tensor);
      } else {
        out_.Global(kMetadataModule, "BytesStorageMetadata");
        out_.EmptyTuple();
        out_.NewObj();
      }
    }
    EndItems(metadata_.entries.size());
  }

  void WritePlanner() {
    if (!metadata_.has_planner_data) {
      out_.None();
      return;
    }
    out_.EmptyDict();
    size_t num_items = 0;
    for (const MetadataEntry& entry : metadata_.entries) {
      if (entry.path.empty()) continue;
      NextItem(num_items++);
      out_.Str(entry.fqn);
      out_.Mark();
      for (const PathElement& element : entry.path) {
        if (const auto* key = std::get_if<std::string>(&element)) {
          out_.Str(*key);
        } else {
          out_.Int(std::get<int64_t>(element));
        }
      }
      out_.Tuple();
    }
    EndItems(num_items);
  }

  void WriteInfo(const StorageInfo& info) {
    Begin(kStorageModule, "_StorageInfo");
    Attribute("relative_path", metadata_.files[info.file]);
    Attribute("offset", info.offset);
    Attribute("length", info.length);
    End();
  }

  void WriteChunkStorage(const MetadataEntry& entry,
                         const TensorStorageMetadata& tensor,
                         size_t& num_items) {
    // A key may occur only once. A chunk with elements takes precedence over
    // chunks without.
    absl::flat_hash_set<Dims> taken;
    const bool has_empty =
        std::any_of(tensor.chunks.begin(), tensor.chunks.end(),
                    [](const ChunkStorageMetadata& c) { return IsEmpty(c); });
    if (has_empty) {
      for (const ChunkStorageMetadata& chunk : tensor.chunks) {
        if (!IsEmpty(chunk)) taken.insert(chunk.box.offsets);
      }
    }
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      const ChunkStorageMetadata& chunk = tensor.chunks[i];
      if (IsEmpty(chunk) && !taken.insert(chunk.box.offsets).second) continue;
      NextItem(num_items++);
      Begin(kMetadataModule, "MetadataIndex");
      Attribute("fqn", entry.fqn);
      Attribute("index", uint64_t{i});
      Attribute("offset", chunk.box.offsets);
      End();
      WriteInfo(chunk.storage);
    }
  }

  static bool IsEmpty(const ChunkStorageMetadata& chunk) {
    return Volume(chunk.box.sizes) == 0;
  }

  void WriteStorage() {
    out_.EmptyDict();
    size_t num_items = 0;
    for (const MetadataEntry& entry : metadata_.entries) {
      if (const auto* tensor =
              std::get_if<TensorStorageMetadata>(&entry.value)) {
        WriteChunkStorage(entry, *tensor, num_items);
        continue;
      }
      NextItem(num_items++);
      Begin(kMetadataModule, "MetadataIndex");
      Attribute("fqn", entry.fqn);
      out_.Str("index");
      out_.None();
      End();
      WriteInfo(std::get<BytesStorageMetadata>(entry.value).storage);
    }
    EndItems(num_items);
  }

  void WriteStorageMeta() {
    Begin(kMetadataModule, "StorageMeta");
    out_.Str("checkpoint_id");
    out_.None();
    out_.Str("save_id");
    if (metadata_.save_id.empty()) {
      out_.None();
    } else {
      out_.Str(metadata_.save_id);
    }
    out_.Str("load_id");
    out_.None();
    out_.Str("modules");
    out_.EmptyList();
    End();
  }

  const Metadata& metadata_;
  PickleWriter out_;
  std::optional<uint32_t> layout_slot_;
  std::optional<uint32_t> format_slot_;
};

}  // namespace

std::string WriteDcpMetadata(const Metadata& metadata) {
  return Writer(metadata).Write();
}

}  // namespace dcp
