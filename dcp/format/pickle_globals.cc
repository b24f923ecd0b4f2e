// The allow-lists of pickle_reader.h. What stands here is data to us whatever
// its arguments: a name that would run code in Python when it is called with
// chosen arguments does not belong here.

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"
#include "dcp/format/pickle_reader.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

struct Entry {
  absl::string_view module;
  absl::string_view name;
};

constexpr Entry kCommon[] = {
    {"_codecs", "encode"},  // to latin1 only, see pickle_reader.cc
    {"collections", "OrderedDict"}, {"pathlib", "PosixPath"},
    {"pathlib", "PurePosixPath"},   {"pathlib", "PureWindowsPath"},
    {"pathlib", "WindowsPath"},     {"torch", "Size"},
    {"torch", "channels_last"},     {"torch", "channels_last_3d"},
    {"torch", "contiguous_format"}, {"torch", "device"},
    {"torch", "preserve_format"},   {"torch.serialization", "_get_layout"},
};

constexpr Entry kStateDict[] = {
    {"builtins", "bytearray"},
    {"builtins", "bytes"},
    {"builtins", "complex"},
    {"builtins", "dict"},
    {"builtins", "float"},
    {"builtins", "frozenset"},
    {"builtins", "int"},
    {"builtins", "list"},
    {"builtins", "set"},
    {"builtins", "slice"},
    {"builtins", "str"},
    {"builtins", "tuple"},
    {"collections", "Counter"},
    {"collections", "defaultdict"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy._core.numeric", "_frombuffer"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.core.numeric", "_frombuffer"},
    {"torch", "Tensor"},
    {"torch", "per_channel_affine"},
    {"torch", "per_channel_affine_float_qparams"},
    {"torch", "per_channel_symmetric"},
    {"torch", "per_tensor_affine"},
    {"torch", "per_tensor_symmetric"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage"},
    {"torch._utils", "_rebuild_nested_tensor"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_parameter_with_state"},
    {"torch._utils", "_rebuild_qtensor"},
    {"torch._utils", "_rebuild_sparse_csr_tensor"},
    {"torch._utils", "_rebuild_sparse_tensor"},
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch.nn.parameter", "Buffer"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.storage", "TypedStorage"},
    {"torch.storage", "UntypedStorage"},
};

constexpr absl::string_view kMetadataModule =
    "torch.distributed.checkpoint.metadata";
constexpr absl::string_view kOldMetadataModule =
    "torch.distributed._shard.sharded_tensor.metadata";

constexpr Entry kMetadata[] = {
    {"builtins", "getattr"},  // one form only, see pickle_reader.cc
    {kMetadataModule, "BytesStorageMetadata"},
    {kMetadataModule, "ChunkStorageMetadata"},
    {kMetadataModule, "Metadata"},
    {kMetadataModule, "MetadataIndex"},
    {kMetadataModule, "StorageMeta"},
    {kMetadataModule, "TensorProperties"},
    {kMetadataModule, "TensorStorageMetadata"},
    {kMetadataModule, "_MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {kOldMetadataModule, "MEM_FORMAT_ENCODING"},
    {kOldMetadataModule, "TensorProperties"},
};

template <size_t kSize>
bool Has(const Entry (&entries)[kSize], absl::string_view module,
         absl::string_view name) {
  return std::any_of(std::begin(entries), std::end(entries),
                     [&](const Entry& entry) {
                       return entry.name == name && entry.module == module;
                     });
}

bool IsDType(absl::string_view module, absl::string_view name) {
  return module == "torch" && DTypeFromTorchName(name).has_value();
}

// The storage classes, those of quantized tensors too: such a tensor is then
// refused, or left out, by its name in the state dict.
bool IsStorageClass(absl::string_view module, absl::string_view name) {
  if (module != "torch" && module != "torch.cuda") return false;
  constexpr absl::string_view kQuantized[] = {
      "QInt32Storage", "QInt8Storage", "QUInt2x4Storage", "QUInt4x2Storage",
      "QUInt8Storage"};
  return DTypeFromStorageClassName(name).has_value() ||
         std::find(std::begin(kQuantized), std::end(kQuantized), name) !=
             std::end(kQuantized);
}

}  // namespace

bool IsStateDictGlobal(absl::string_view module, absl::string_view name) {
  return Has(kCommon, module, name) || Has(kStateDict, module, name) ||
         IsDType(module, name) || IsStorageClass(module, name);
}

bool IsMetadataGlobal(absl::string_view module, absl::string_view name) {
  return Has(kCommon, module, name) || Has(kMetadata, module, name) ||
         IsDType(module, name);
}

}  // namespace dcp
