#include "dcp/format/dcp_metadata.h"

#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle_reader.h"
#include "dcp/format/state_path.h"
#include "dcp/format/state_tree.h"
#include "dcp/format/value.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr absl::string_view kModule = "torch.distributed.checkpoint.metadata";
// Where PyTorch 2.2 and earlier had TensorProperties and its enum.
constexpr absl::string_view kOldModule =
    "torch.distributed._shard.sharded_tensor.metadata";
constexpr absl::string_view kStorageModule =
    "torch.distributed.checkpoint.filesystem";
// More attributes than any object of the index has, with room for new ones.
constexpr size_t kMaxAttributes = 64;

// A name as it may stand in a message: a hostile one must not fill it.
absl::string_view Short(absl::string_view text) { return text.substr(0, 200); }

absl::Status WrongType(absl::string_view what, const Value& value) {
  return absl::DataLossError(
      absl::StrCat(what, " has an unexpected value: ", ToString(value, 80)));
}

// The attributes of one object: the dict that its BUILD gave it.
class Attributes {
 public:
  // `object` must be made by `module`.`name`(). Attributes that nobody asks for
  // are passed over.
  static absl::StatusOr<Attributes> Of(const Value& object,
                                       absl::string_view module,
                                       absl::string_view name) {
    if (!object.IsCallOf(module, name) || !object.state().is(Kind::kDict)) {
      return WrongType(absl::StrCat("a ", name), object);
    }
    const Attributes attributes(object.state().items());
    const absl::Span<const Value> items = attributes.items_;
    if (items.size() > 2 * kMaxAttributes) {
      return absl::DataLossError(
          absl::StrCat(name, " has ", items.size() / 2, " attributes"));
    }
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr)) {
        return WrongType(absl::StrCat("an attribute name of ", name), items[i]);
      }
      const absl::string_view key = items[i].text();
      if (attributes.IndexOf(key) != i) {
        return absl::DataLossError(
            absl::StrCat(name, " has its attribute ", Short(key), " twice"));
      }
    }
    return attributes;
  }

  // None when absent.
  Value Get(absl::string_view name) const {
    const size_t i = IndexOf(name);
    return i == items_.size() ? Value() : items_[i + 1];
  }

 private:
  explicit Attributes(absl::Span<const Value> items) : items_(items) {}

  size_t IndexOf(absl::string_view name) const {
    size_t i = 0;
    while (i < items_.size() && items_[i].text() != name) i += 2;
    return i;
  }

  absl::Span<const Value> items_;
};

// The dimensions in torch.Size((2, 3)), each not negative.
absl::StatusOr<absl::Span<const Value>> SizeItems(const Value& value) {
  if (!value.IsCallOf("torch", "Size") || value.args().items().size() != 1 ||
      !value.args().items()[0].is(Kind::kTuple)) {
    return WrongType("a torch.Size", value);
  }
  const absl::Span<const Value> items = value.args().items()[0].items();
  if (items.size() > kMaxDims) {
    return absl::DataLossError(
        absl::StrCat(items.size(), " dimensions exceed ", kMaxDims));
  }
  for (const Value& item : items) {
    if (!item.is(Kind::kInt) || item.int_value() < 0) {
      return WrongType("a dimension", item);
    }
  }
  return items;
}

absl::StatusOr<Dims> ParseSize(const Value& value) {
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> items, SizeItems(value));
  Dims dims;
  dims.reserve(items.size());
  for (const Value& item : items) dims.push_back(item.int_value());
  return dims;
}

absl::StatusOr<uint64_t> ParseCount(const Value& value,
                                    absl::string_view what) {
  if (!value.is(Kind::kInt) || value.int_value() < 0) {
    return WrongType(what, value);
  }
  return static_cast<uint64_t>(value.int_value());
}

// A class that was in kOldModule once.
bool IsCallOfEither(const Value& value, absl::string_view name,
                    absl::string_view old_name) {
  return value.IsCallOf(kModule, name) || value.IsCallOf(kOldModule, old_name);
}

absl::Status CheckMemoryFormat(const Value& value) {
  if (IsCallOfEither(value, "_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING")) {
    const absl::Span<const Value> args = value.args().items();
    if (args.size() == 1 && args[0].is(Kind::kInt) &&
        args[0].int_value() >= 0 && args[0].int_value() <= 2) {
      return absl::OkStatus();
    }
  }
  if (value.IsCallOf("builtins", "getattr")) {
    const absl::Span<const Value> args = value.args().items();
    if (args.size() == 2 &&
        (args[0].IsGlobal(kModule, "_MEM_FORMAT_ENCODING") ||
         args[0].IsGlobal(kOldModule, "MEM_FORMAT_ENCODING")) &&
        args[1].is(Kind::kStr) &&
        (args[1].text() == "TORCH_CONTIGUOUS_FORMAT" ||
         args[1].text() == "TORCH_CHANNELS_LAST" ||
         args[1].text() == "TORCH_PRESERVE_FORMAT")) {
      return absl::OkStatus();
    }
  }
  return WrongType("the memory format", value);
}

absl::Status CheckLayout(const Value& value) {
  if (value.IsCallOf("torch.serialization", "_get_layout") &&
      value.args().items().size() == 1 &&
      value.args().items()[0].is(Kind::kStr)) {
    const absl::string_view layout = value.args().items()[0].text();
    if (layout == "torch.strided") return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("a tensor of layout ", Short(layout)));
  }
  return WrongType("the layout", value);
}

// TensorProperties with the state (dtype, layout, requires_grad, memory
// format, pin_memory), of which only the first means anything to a reader.
// Newer PyTorch (2.15 does) appends the strides, a tuple or None.
absl::StatusOr<DType> ParseProperties(const Value& value) {
  if (!IsCallOfEither(value, "TensorProperties", "TensorProperties") ||
      !value.state().is(Kind::kTuple) || value.state().items().size() < 5 ||
      value.state().items().size() > 6) {
    return WrongType("a TensorProperties", value);
  }
  const absl::Span<const Value> state = value.state().items();
  if (!state[2].is(Kind::kBool) || !state[4].is(Kind::kBool) ||
      (state.size() == 6 && !state[5].is(Kind::kTuple) &&
       !state[5].is(Kind::kNone))) {
    return WrongType("a TensorProperties", value);
  }
  DCP_RETURN_IF_ERROR(CheckLayout(state[1]));
  DCP_RETURN_IF_ERROR(CheckMemoryFormat(state[3]));
  if (!state[0].is(Kind::kGlobal) || state[0].module() != "torch") {
    return WrongType("the dtype", state[0]);
  }
  const std::optional<DType> dtype = DTypeFromTorchName(state[0].name());
  if (!dtype.has_value()) {
    return absl::DataLossError(
        absl::StrCat("unknown dtype torch.", Short(state[0].name())));
  }
  return *dtype;
}

absl::StatusOr<Box> ParseChunk(const Value& value,
                               absl::Span<const int64_t> size) {
  DCP_ASSIGN_OR_RETURN(const Attributes chunk,
                       Attributes::Of(value, kModule, "ChunkStorageMetadata"));
  Box box;
  DCP_ASSIGN_OR_RETURN(box.offsets, ParseSize(chunk.Get("offsets")));
  DCP_ASSIGN_OR_RETURN(box.sizes, ParseSize(chunk.Get("sizes")));
  if (box.offsets.size() != size.size() || box.sizes.size() != size.size() ||
      !Contains(WholeBox(size), box)) {
    return absl::DataLossError(
        absl::StrCat("the chunk of shape ", ShapeToString(box.sizes), " at ",
                     ShapeToString(box.offsets), " leaves the tensor of shape ",
                     ShapeToString(size)));
  }
  return box;
}

absl::StatusOr<TensorStorageMetadata> ParseTensor(const Value& value) {
  DCP_ASSIGN_OR_RETURN(const Attributes attributes,
                       Attributes::Of(value, kModule, "TensorStorageMetadata"));
  TensorStorageMetadata tensor;
  DCP_ASSIGN_OR_RETURN(tensor.dtype,
                       ParseProperties(attributes.Get("properties")));
  DCP_ASSIGN_OR_RETURN(tensor.size, ParseSize(attributes.Get("size")));
  const std::optional<int64_t> volume = CheckedVolume(tensor.size);
  if (!volume.has_value() ||
      !CheckedMul(static_cast<uint64_t>(*volume), ElementSize(tensor.dtype))
           .has_value()) {
    return absl::DataLossError(absl::StrCat(
        "the shape ", ShapeToString(tensor.size), " exceeds 64 bits"));
  }
  const Value chunks = attributes.Get("chunks");
  if (!chunks.is(Kind::kList)) return WrongType("a list of chunks", chunks);
  tensor.chunks.reserve(chunks.items().size());
  for (const Value& chunk : chunks.items()) {
    DCP_ASSIGN_OR_RETURN(Box box, ParseChunk(chunk, tensor.size));
    tensor.chunks.push_back({.box = std::move(box), .storage = {}});
  }
  return tensor;
}

// An entry of storage_data. Equal to another when entry and offset are: the
// index in the key is only a hint.
struct Stored {
  uint32_t entry = 0;
  bool has_offset = false;  // of a chunk, not of a bytes entry
  bool used = false;        // by a chunk that holds elements
  absl::Span<const Value> offset;
  StorageInfo info;
};

// How the join finds a Stored: the offset as the index has it in both places.
struct StoredKey {
  uint32_t entry;
  bool has_offset;
  absl::InlinedVector<int64_t, 4> offset;
};

StoredKey KeyOf(const Stored& stored) {
  StoredKey key{
      .entry = stored.entry, .has_offset = stored.has_offset, .offset = {}};
  for (const Value& value : stored.offset) {
    key.offset.push_back(value.int_value());
  }
  return key;
}

struct StoredHash {
  using is_transparent = void;
  const std::vector<Stored>* all;

  size_t operator()(const StoredKey& key) const {
    return absl::HashOf(key.entry, key.has_offset, key.offset);
  }
  size_t operator()(uint32_t i) const { return (*this)(KeyOf((*all)[i])); }
};

struct StoredEqual {
  using is_transparent = void;
  const std::vector<Stored>* all;

  bool operator()(uint32_t i, const StoredKey& key) const {
    const Stored& stored = (*all)[i];
    if (stored.entry != key.entry || stored.has_offset != key.has_offset ||
        stored.offset.size() != key.offset.size()) {
      return false;
    }
    for (size_t k = 0; k < key.offset.size(); ++k) {
      if (stored.offset[k].int_value() != key.offset[k]) return false;
    }
    return true;
  }
  bool operator()(const StoredKey& key, uint32_t i) const {
    return (*this)(i, key);
  }
  bool operator()(uint32_t i, uint32_t k) const {
    return (*this)(i, KeyOf((*all)[k]));
  }
};

// Builds a Metadata table by table.
class Parser {
 public:
  Parser() : by_offset_(0, StoredHash{&stored_}, StoredEqual{&stored_}) {}
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  absl::StatusOr<Metadata> Parse(const Value& root) {
    DCP_ASSIGN_OR_RETURN(const Attributes attributes,
                         Attributes::Of(root, kModule, "Metadata"));
    DCP_RETURN_IF_ERROR(ParseState(attributes.Get("state_dict_metadata")));
    DCP_RETURN_IF_ERROR(ParseStorage(attributes.Get("storage_data")));
    DCP_RETURN_IF_ERROR(Join());
    DCP_RETURN_IF_ERROR(ParsePlanner(attributes.Get("planner_data")));
    DCP_RETURN_IF_ERROR(ParseStorageMeta(attributes.Get("storage_meta")));
    const Value version = attributes.Get("version");
    if (version.is(Kind::kStr)) {
      metadata_.version = std::string(version.text());
    } else if (!version.is_none()) {
      return WrongType("version", version);
    }
    return std::move(metadata_);
  }

 private:
  absl::Status ParseState(const Value& table) {
    if (!IsMapping(table)) return WrongType("state_dict_metadata", table);
    const absl::Span<const Value> items = table.items();
    if (items.size() / 2 > std::numeric_limits<uint32_t>::max()) {
      return absl::ResourceExhaustedError("too many entries");
    }
    metadata_.entries.reserve(items.size() / 2);
    by_name_.reserve(items.size() / 2);
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr)) return WrongType("a name", items[i]);
      const absl::string_view fqn = items[i].text();
      if (fqn.size() > kMaxNameBytes) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "a name of ", fqn.size(), " bytes exceeds ", kMaxNameBytes));
      }
      const auto index = static_cast<uint32_t>(metadata_.entries.size());
      if (!by_name_.emplace(fqn, index).second) {
        return absl::DataLossError(absl::StrCat(Short(fqn), " is there twice"));
      }
      MetadataEntry& entry = metadata_.entries.emplace_back();
      entry.fqn = std::string(fqn);
      DCP_RETURN_IF_ERROR(
          Annotate(ParseEntry(items[i + 1], entry), Short(fqn)));
    }
    return absl::OkStatus();
  }

  // The entry of that name. The tables of an index mostly follow one order, so
  // the entry found last and the one after it are tried before the hash.
  std::optional<uint32_t> EntryOf(absl::string_view fqn) {
    for (uint32_t i = last_found_;
         i < metadata_.entries.size() && i <= last_found_ + 1; ++i) {
      if (metadata_.entries[i].fqn == fqn) return last_found_ = i;
    }
    const auto it = by_name_.find(fqn);
    if (it == by_name_.end()) return std::nullopt;
    return last_found_ = it->second;
  }

  static absl::Status ParseEntry(const Value& value, MetadataEntry& entry) {
    if (value.IsCallOf(kModule, "BytesStorageMetadata")) {
      entry.value = BytesStorageMetadata{};
      return absl::OkStatus();
    }
    DCP_ASSIGN_OR_RETURN(entry.value, ParseTensor(value));
    return absl::OkStatus();
  }

  absl::Status ParseStorage(const Value& table) {
    if (!IsMapping(table)) return WrongType("storage_data", table);
    const absl::Span<const Value> items = table.items();
    stored_.reserve(items.size() / 2);
    by_offset_.reserve(items.size() / 2);
    for (size_t i = 0; i < items.size(); i += 2) {
      DCP_ASSIGN_OR_RETURN(const Attributes index,
                           Attributes::Of(items[i], kModule, "MetadataIndex"));
      const Value fqn = index.Get("fqn");
      const Value hint = index.Get("index");
      if (!fqn.is(Kind::kStr)) return WrongType("a name", fqn);
      if (!hint.is_none() && !hint.is(Kind::kInt)) {
        return WrongType("a chunk index", hint);
      }
      const std::optional<uint32_t> entry = EntryOf(fqn.text());
      if (!entry.has_value()) continue;  // of a name that is not listed
      const absl::Status added =
          AddStored(*entry, index.Get("offset"), items[i + 1]);
      if (!added.ok()) {
        return Annotate(added, "storage of ", Short(fqn.text()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddStored(uint32_t entry, const Value& offset,
                         const Value& info) {
    Stored stored;
    stored.entry = entry;
    stored.has_offset = !offset.is_none();
    if (stored.has_offset) {
      DCP_ASSIGN_OR_RETURN(stored.offset, SizeItems(offset));
    }
    DCP_ASSIGN_OR_RETURN(stored.info, ParseInfo(info));
    stored_.push_back(stored);
    const auto index = static_cast<uint32_t>(stored_.size() - 1);
    if (!by_offset_.insert(index).second) {
      return absl::DataLossError("the same offset is there twice");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StorageInfo> ParseInfo(const Value& value) {
    DCP_ASSIGN_OR_RETURN(const Attributes attributes,
                         Attributes::Of(value, kStorageModule, "_StorageInfo"));
    StorageInfo info;
    const Value path = attributes.Get("relative_path");
    if (!path.is(Kind::kStr)) return WrongType("relative_path", path);
    DCP_ASSIGN_OR_RETURN(info.file, InternFile(path.text()));
    DCP_ASSIGN_OR_RETURN(info.offset,
                         ParseCount(attributes.Get("offset"), "offset"));
    DCP_ASSIGN_OR_RETURN(info.length,
                         ParseCount(attributes.Get("length"), "length"));
    if (info.offset + info.length >
        static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::DataLossError(absl::StrCat("offset ", info.offset,
                                              " and length ", info.length,
                                              " exceed 63 bits"));
    }
    DCP_RETURN_IF_ERROR(
        CheckTransforms(attributes.Get("transform_descriptors")));
    return info;
  }

  static absl::Status CheckTransforms(const Value& value) {
    if (value.is_none()) return absl::OkStatus();
    if (!value.is(Kind::kList) && !value.is(Kind::kTuple)) {
      return WrongType("transform_descriptors", value);
    }
    if (value.items().empty()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("written through the transforms ", ToString(value)));
  }

  absl::StatusOr<uint32_t> InternFile(absl::string_view path) {
    const auto it = file_index_.find(path);
    if (it != file_index_.end()) return it->second;
    if (absl::Status status = CheckRelativePath(path); !status.ok()) {
      return absl::DataLossError(status.message());
    }
    if (metadata_.files.size() == kMaxFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxFiles, " files"));
    }
    const auto index = static_cast<uint32_t>(metadata_.files.size());
    metadata_.files.emplace_back(path);
    file_index_.emplace(path, index);
    return index;
  }

  // Gives every chunk and every bytes entry its storage.
  absl::Status Join() {
    for (size_t i = 0; i < metadata_.entries.size(); ++i) {
      MetadataEntry& entry = metadata_.entries[i];
      StoredKey key{
          .entry = static_cast<uint32_t>(i), .has_offset = true, .offset = {}};
      if (auto* bytes = std::get_if<BytesStorageMetadata>(&entry.value)) {
        key.has_offset = false;
        const absl::Status taken = Take(key, true, bytes->storage);
        if (!taken.ok()) return Annotate(taken, Short(entry.fqn));
        continue;
      }
      auto& tensor = std::get<TensorStorageMetadata>(entry.value);
      for (ChunkStorageMetadata& chunk : tensor.chunks) {
        key.offset = chunk.box.offsets;
        const bool holds_elements = Volume(chunk.box.sizes) != 0;
        const absl::Status taken = Take(key, holds_elements, chunk.storage);
        if (!taken.ok()) {
          return Annotate(taken, Short(entry.fqn), ", chunk at ",
                          ShapeToString(chunk.box.offsets));
        }
      }
    }
    return absl::OkStatus();
  }

  // Chunks without elements may share an offset, as the empty shards of
  // several ranks do; nothing is ever read for them.
  absl::Status Take(const StoredKey& key, bool holds_elements,
                    StorageInfo& info) {
    const auto it = by_offset_.find(key);
    if (it == by_offset_.end()) {
      return absl::DataLossError("no entry in storage_data");
    }
    Stored& stored = stored_[*it];
    if (holds_elements && stored.used) {
      return absl::DataLossError("listed twice");
    }
    if (holds_elements && stored.info.length == 0) {
      return absl::DataLossError("stored with length 0");
    }
    stored.used = stored.used || holds_elements;
    info = stored.info;
    return absl::OkStatus();
  }

  absl::Status ParsePlanner(const Value& table) {
    metadata_.has_planner_data = !table.is_none();
    if (table.is_none()) return absl::OkStatus();
    if (!IsMapping(table)) return WrongType("planner_data", table);
    const absl::Span<const Value> items = table.items();
    std::vector<uint32_t> with_path;
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr)) {
        return WrongType("a name in planner_data", items[i]);
      }
      const absl::string_view fqn = items[i].text();
      const std::optional<uint32_t> entry = EntryOf(fqn);
      if (!entry.has_value()) continue;
      StatePath& path = metadata_.entries[*entry].path;
      if (!path.empty()) {
        return absl::DataLossError(
            absl::StrCat("planner_data has ", Short(fqn), " twice"));
      }
      const absl::Status parsed = ParsePath(items[i + 1], path);
      if (!parsed.ok()) {
        return Annotate(parsed, "planner_data of ", Short(fqn));
      }
      with_path.push_back(*entry);
    }
    return CheckAllPaths(with_path);
  }

  static absl::Status ParsePath(const Value& value, StatePath& path) {
    if (!value.is(Kind::kTuple) || value.items().empty()) {
      return WrongType("the path", value);
    }
    if (value.items().size() > kMaxPickleDepth) {
      return absl::DataLossError(
          absl::StrCat("a path of ", value.items().size(), " elements exceeds ",
                       kMaxPickleDepth));
    }
    path.reserve(value.items().size());
    for (const Value& element : value.items()) {
      if (element.is(Kind::kStr)) {
        path.emplace_back(std::string(element.text()));
      } else if (element.is(Kind::kInt)) {
        path.emplace_back(element.int_value());
      } else {
        return WrongType("a path element", element);
      }
    }
    return absl::OkStatus();
  }

  // Lends the paths to CheckPaths, which wants them in a row.
  absl::Status CheckAllPaths(absl::Span<const uint32_t> with_path) {
    std::vector<StatePath> paths;
    paths.reserve(with_path.size());
    for (const uint32_t i : with_path) {
      paths.push_back(std::move(metadata_.entries[i].path));
    }
    if (absl::Status status = CheckPaths(paths); !status.ok()) {
      return absl::DataLossError(
          absl::StrCat("planner_data: ", status.message()));
    }
    for (size_t k = 0; k < with_path.size(); ++k) {
      metadata_.entries[with_path[k]].path = std::move(paths[k]);
    }
    return absl::OkStatus();
  }

  absl::Status ParseStorageMeta(const Value& value) {
    if (value.is_none()) return absl::OkStatus();  // before PyTorch 2.3
    DCP_ASSIGN_OR_RETURN(const Attributes attributes,
                         Attributes::Of(value, kModule, "StorageMeta"));
    const Value save_id = attributes.Get("save_id");
    if (save_id.is(Kind::kStr)) {
      metadata_.save_id = std::string(save_id.text());
    } else if (!save_id.is_none()) {
      return WrongType("save_id", save_id);
    }
    return absl::OkStatus();
  }

  Metadata metadata_;
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
  uint32_t last_found_ = 0;
  absl::flat_hash_map<absl::string_view, uint32_t> file_index_;
  std::vector<Stored> stored_;
  absl::flat_hash_set<uint32_t, StoredHash, StoredEqual> by_offset_;
};

}  // namespace

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes) {
  if (bytes.size() > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ".metadata of ", bytes.size(), " bytes exceeds ", kMaxMetadataBytes));
  }
  ValueArena arena;
  DCP_ASSIGN_OR_RETURN(
      const PickleResult pickle,
      ReadPickle(bytes, {.allow_global = IsMetadataGlobal}, arena));
  return Parser().Parse(pickle.root);
}

absl::Status CheckRelativePath(absl::string_view path) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("file name \"", Short(path), "\" ", why));
  };
  if (path.empty()) return refuse("is empty");
  if (path.size() > kMaxNameBytes) return refuse("is too long");
  if (path.find('\0') != absl::string_view::npos) return refuse("holds a NUL");
  if (absl::StartsWith(path, "/")) return refuse("is absolute");
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return refuse("leaves the directory or has an odd component");
    }
  }
  return absl::OkStatus();
}

}  // namespace dcp
