// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/dcp_metadata.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/index/stored_items.h"
#include "dcp/format/pickle/metadata_modules.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/value/value.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;
using SizeId = MetadataObjects::SizeId;

// Whether `value` calls a class that may have been pickled from either module.
bool IsCallOfEither(const Value& value, absl::string_view name,
                    absl::string_view old_name) {
  return value.IsCallOf(kMetadataModule, name) ||
         value.IsCallOf(kOldMetadataModule, old_name);
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
        (args[0].IsGlobal(kMetadataModule, "_MEM_FORMAT_ENCODING") ||
         args[0].IsGlobal(kOldMetadataModule, "MEM_FORMAT_ENCODING")) &&
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
        absl::StrCat("a tensor of layout ", Short(layout),
                     " is not supported; only torch.strided is"));
  }
  return WrongType("the layout", value);
}

// Parses a TensorProperties with the state (dtype, layout, requires_grad,
// memory format, pin_memory). A reader needs only the dtype. Newer versions of
// PyTorch (such as 2.15) append the strides, a tuple or None.
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

// Builds a Metadata table by table: the names, the items' locations, and then
// the entries, in which each chunk gets the item at its offset.
class Parser {
 public:
  explicit Parser(MetadataObjects& objects)
      : objects_(objects), items_(objects) {}
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  absl::StatusOr<Metadata> Parse(const Attributes& attributes) {
    const Value state = attributes.Get("state_dict_metadata");
    if (!IsMapping(state)) return WrongType("state_dict_metadata", state);
    DCP_RETURN_IF_ERROR(ParseNames(state.items()));
    DCP_RETURN_IF_ERROR(items_.Read(attributes.Get("storage_data"), by_name_));
    metadata_.files = items_.TakeFiles();
    DCP_RETURN_IF_ERROR(ParseEntries(state.items()));
    DCP_RETURN_IF_ERROR(ParseMcoreData(attributes.Get("mcore_data")));
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
  absl::Status ParseNames(absl::Span<const Value> items) {
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
        return absl::DataLossError(absl::StrCat(Short(fqn), " occurs twice"));
      }
      metadata_.entries.emplace_back().fqn = std::string(fqn);
    }
    return absl::OkStatus();
  }

  std::optional<uint32_t> FindEntry(absl::string_view fqn) const {
    const auto it = by_name_.find(fqn);
    if (it == by_name_.end()) return std::nullopt;
    return it->second;
  }

  absl::Status ParseEntries(absl::Span<const Value> items) {
    for (uint32_t i = 0; i < metadata_.entries.size(); ++i) {
      items_.BeginEntry(i);
      MetadataEntry& entry = metadata_.entries[i];
      DCP_RETURN_IF_ERROR(
          Annotate(ParseEntry(items[2 * i + 1], entry), Short(entry.fqn)));
    }
    return absl::OkStatus();
  }

  absl::Status ParseEntry(const Value& value, MetadataEntry& entry) {
    if (value.IsCallOf(kMetadataModule, "BytesStorageMetadata")) {
      return items_.Take(MetadataObjects::kNoSize, /*holds_elements=*/true,
                         entry.value.emplace<BytesStorageMetadata>().storage);
    }
    return ParseTensor(value, entry.value.emplace<TensorStorageMetadata>());
  }

  absl::Status ParseTensor(const Value& value, TensorStorageMetadata& tensor) {
    DCP_ASSIGN_OR_RETURN(const Attributes attributes,
                         Attributes::FromObject(value, kMetadataModule,
                                                "TensorStorageMetadata"));
    DCP_ASSIGN_OR_RETURN(tensor.dtype,
                         ParseProperties(attributes.Get("properties")));
    DCP_ASSIGN_OR_RETURN(const SizeId size,
                         objects_.ReadSize(attributes.Get("size")));
    tensor.size = CopyDims(size);
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
      DCP_RETURN_IF_ERROR(ParseChunk(chunk, tensor));
    }
    return absl::OkStatus();
  }

  absl::Status ParseChunk(const Value& value, TensorStorageMetadata& tensor) {
    DCP_ASSIGN_OR_RETURN(const MetadataObjects::Chunk ids,
                         objects_.ReadChunk(value));
    ChunkStorageMetadata& chunk = tensor.chunks.emplace_back();
    Box& box = chunk.box;
    box.offsets = CopyDims(ids.offsets);
    box.sizes = CopyDims(ids.sizes);
    if (box.offsets.size() != tensor.size.size() ||
        box.sizes.size() != tensor.size.size() ||
        !Contains(WholeBox(tensor.size), box)) {
      return absl::DataLossError(absl::StrCat(
          "a chunk of shape ", ShapeToString(box.sizes), " at ",
          ShapeToString(box.offsets), " is not inside the tensor of shape ",
          ShapeToString(tensor.size)));
    }
    const absl::Status taken =
        items_.Take(ids.offsets, Volume(box.sizes) != 0, chunk.storage);
    if (taken.ok()) return taken;
    return Annotate(taken, "chunk at ", ShapeToString(box.offsets));
  }

  Dims CopyDims(SizeId id) const {
    const absl::Span<const int64_t> dims = objects_.dims(id);
    return Dims(dims.begin(), dims.end());
  }

  // Parses {name: {}} or {name: {"nd_reformulated_orig_global_shape": shape}}.
  // Source: MCoreSavePlanner.create_global_plan in
  // megatron/core/dist_checkpointing/strategies/torch.py, version 0.15.
  absl::Status ParseMcoreData(const Value& table) {
    if (table.is_none()) return absl::OkStatus();
    if (!IsMapping(table)) return WrongType("mcore_data", table);
    const absl::Span<const Value> items = table.items();
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(Kind::kStr)) {
        return WrongType("a name in mcore_data", items[i]);
      }
      const std::optional<uint32_t> entry = FindEntry(items[i].text());
      if (!entry.has_value()) continue;
      DCP_RETURN_IF_ERROR(
          Annotate(ParseMcoreData(items[i + 1], metadata_.entries[*entry]),
                   "mcore_data of ", Short(items[i].text())));
    }
    return absl::OkStatus();
  }

  absl::Status ParseMcoreData(const Value& value, MetadataEntry& entry) {
    if (!IsMapping(value)) return WrongType("it", value);
    const std::optional<Value> shape =
        FindKey(value, "nd_reformulated_orig_global_shape");
    if (!shape.has_value()) return absl::OkStatus();
    auto* const tensor = std::get_if<TensorStorageMetadata>(&entry.value);
    if (tensor == nullptr) {
      return absl::DataLossError("it has a shape but is not a tensor");
    }
    DCP_ASSIGN_OR_RETURN(tensor->reformulated_from, ParseShape(*shape));
    return absl::OkStatus();
  }

  // A plain tuple, or a torch.Size.
  absl::StatusOr<Dims> ParseShape(const Value& value) {
    if (!value.is(Kind::kTuple)) {
      DCP_ASSIGN_OR_RETURN(const SizeId size, objects_.ReadSize(value));
      return CopyDims(size);
    }
    Dims shape;
    for (const Value& dim : value.items()) {
      if (!dim.is(Kind::kInt) || dim.int_value() < 0 ||
          shape.size() == kMaxDims) {
        return WrongType("a shape", value);
      }
      shape.push_back(dim.int_value());
    }
    return shape;
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
      const std::optional<uint32_t> entry = FindEntry(fqn);
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

  // Moves the paths to a vector for CheckPaths, and back.
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
    DCP_ASSIGN_OR_RETURN(
        const Attributes attributes,
        Attributes::FromObject(value, kMetadataModule, "StorageMeta"));
    const Value save_id = attributes.Get("save_id");
    if (save_id.is(Kind::kStr)) {
      metadata_.save_id = std::string(save_id.text());
    } else if (!save_id.is_none()) {
      return WrongType("save_id", save_id);
    }
    return absl::OkStatus();
  }

  MetadataObjects& objects_;
  Metadata metadata_;
  absl::flat_hash_map<absl::string_view, uint32_t> by_name_;
  StoredItems items_;
};

}  // namespace

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes) {
  if (bytes.size() > kMaxMetadataBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ".metadata of ", bytes.size(), " bytes exceeds ", kMaxMetadataBytes));
  }
  MetadataObjects objects;
  const auto replace = [&objects](const Value& object) {
    return objects.Replace(object);
  };
  ValueArena arena;
  DCP_ASSIGN_OR_RETURN(
      const PickleResult pickle,
      ReadPickle(bytes, {.allow_global = IsMetadataGlobal, .replace = replace},
                 arena));
  const bool of_megatron =
      pickle.root.IsCallOf(kMegatronModule, "MCoreMetadata");
  DCP_ASSIGN_OR_RETURN(
      const Attributes attributes,
      of_megatron
          ? Attributes::FromObject(pickle.root, kMegatronModule,
                                   "MCoreMetadata")
          : Attributes::FromObject(pickle.root, kMetadataModule, "Metadata"));
  return ParseDcpMetadata(attributes, objects);
}

absl::StatusOr<Metadata> ParseDcpMetadata(const Attributes& attributes,
                                          MetadataObjects& objects) {
  return Parser(objects).Parse(attributes);
}

}  // namespace dcp
