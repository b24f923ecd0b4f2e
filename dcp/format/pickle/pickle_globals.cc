// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_globals.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/format/pickle/metadata_modules.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// Every name listed here is treated as data, with any arguments; a name that
// would run code in Python when called with chosen arguments must not be
// listed.

struct AllowedGlobal {
  absl::string_view module;
  absl::string_view name;
};

constexpr AllowedGlobal kCommon[] = {
    {"_codecs", "encode"},  // to latin1 only, see pickle_calls.cc
    {"collections", "OrderedDict"}, {"pathlib", "PosixPath"},
    {"pathlib", "PurePosixPath"},   {"pathlib", "PureWindowsPath"},
    {"pathlib", "WindowsPath"},     {"torch", "Size"},
    {"torch", "channels_last"},     {"torch", "channels_last_3d"},
    {"torch", "contiguous_format"}, {"torch", "device"},
    {"torch", "preserve_format"},   {"torch.serialization", "_get_layout"},
};

// Classes for objects that hold data and are constructed without side effects.
constexpr AllowedGlobal kInert[] = {
    {"_io", "BytesIO"},
    {"argparse", "Namespace"},
    {"builtins", "range"},
    {"collections", "deque"},
    {"datetime", "date"},
    {"datetime", "datetime"},
    {"datetime", "time"},
    {"datetime", "timedelta"},
    {"datetime", "timezone"},
    {"decimal", "Decimal"},
    {"fractions", "Fraction"},
    {"omegaconf.base", "ContainerMetadata"},
    {"omegaconf.base", "Metadata"},
    {"omegaconf.dictconfig", "DictConfig"},
    {"omegaconf.listconfig", "ListConfig"},
    {"omegaconf.nodes", "AnyNode"},
    {"omegaconf.nodes", "BooleanNode"},
    {"omegaconf.nodes", "BytesNode"},
    {"omegaconf.nodes", "EnumNode"},
    {"omegaconf.nodes", "FloatNode"},
    {"omegaconf.nodes", "IntegerNode"},
    {"omegaconf.nodes", "PathNode"},
    {"omegaconf.nodes", "StringNode"},
    {"pathlib", "Path"},
    {"pathlib", "PurePath"},
    {"torch.torch_version", "TorchVersion"},
    {"types", "SimpleNamespace"},
    {"typing", "Any"},
    {"uuid", "SafeUUID"},
    {"uuid", "UUID"},
};

// A DTensor's parts. Until PyTorch 2.5 the modules had other names.
constexpr AllowedGlobal kDTensor[] = {
    {"torch._utils", "_rebuild_wrapper_subclass"},
    {"torch.distributed._mesh_layout", "_MeshLayout"},
    {"torch.distributed._tensor.api", "DTensor"},
    {"torch.distributed._tensor.placement_types", "DTensorSpec"},
    {"torch.distributed._tensor.placement_types", "Replicate"},
    {"torch.distributed._tensor.placement_types", "Shard"},
    {"torch.distributed._tensor.placement_types", "TensorMeta"},
    {"torch.distributed._tensor.placement_types", "_Partial"},
    {"torch.distributed.device_mesh", "DeviceMesh"},
    {"torch.distributed.tensor", "DTensor"},
    {"torch.distributed.tensor._dtensor_spec", "DTensorSpec"},
    {"torch.distributed.tensor._dtensor_spec", "ShardOrderEntry"},
    {"torch.distributed.tensor._dtensor_spec", "TensorMeta"},
    {"torch.distributed.tensor.placement_types", "Partial"},
    {"torch.distributed.tensor.placement_types", "Replicate"},
    {"torch.distributed.tensor.placement_types", "Shard"},
    {"torch.distributed.tensor.placement_types", "_StridedShard"},
};

// Globals that run code when called with arguments that an attacker chooses.
constexpr AllowedGlobal kCode[] = {
    {"builtins", "__import__"}, {"builtins", "breakpoint"},
    {"builtins", "compile"},    {"builtins", "eval"},
    {"builtins", "exec"},       {"builtins", "execfile"},
    {"builtins", "open"},       {"torch", "load"},
    {"torch.hub", "load"},      {"torch.jit", "load"},
};
constexpr absl::string_view kCodeModules[] = {
    "_posixsubprocess",
    "_winapi",
    "bdb",
    "code",
    "codeop",
    "commands",
    "ctypes",
    "importlib",
    "marshal",
    "nt",
    "ntpath",
    "os",
    "pdb",
    "pickle",
    "_pickle",
    "posix",
    "posixpath",
    "pty",
    "runpy",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "timeit",
    "webbrowser",
};

constexpr AllowedGlobal kStateDict[] = {
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
    {"torch.nested._internal.nested_tensor", "NestedTensor"},
    {"torch.nested._internal.nested_tensor", "_rebuild_njt"},
    {"torch.nn.parameter", "Buffer"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.storage", "TypedStorage"},
    {"torch.storage", "UntypedStorage"},
};

constexpr AllowedGlobal kMetadata[] = {
    {"builtins", "getattr"},  // one form only, see pickle_calls.cc
    {kMetadataModule, "BytesStorageMetadata"},
    {kMetadataModule, "ChunkStorageMetadata"},
    {kMetadataModule, "Metadata"},
    {kMetadataModule, "MetadataIndex"},
    {kMetadataModule, "StorageMeta"},
    {kMetadataModule, "TensorProperties"},
    {kMetadataModule, "TensorStorageMetadata"},
    {kMetadataModule, "_MEM_FORMAT_ENCODING"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    // Megatron-core keeps all ranks' plans; no reader needs them.
    {"torch.distributed.checkpoint.planner", "BytesIOWriteData"},
    {"torch.distributed.checkpoint.planner", "SavePlan"},
    {"torch.distributed.checkpoint.planner", "TensorWriteData"},
    {"torch.distributed.checkpoint.planner", "WriteItem"},
    {"torch.distributed.checkpoint.planner", "WriteItemType"},
    {kOldMetadataModule, "MEM_FORMAT_ENCODING"},
    {kOldMetadataModule, "TensorProperties"},
};

template <size_t kSize>
bool Has(const AllowedGlobal (&entries)[kSize], absl::string_view module,
         absl::string_view name) {
  return std::any_of(std::begin(entries), std::end(entries),
                     [&](const AllowedGlobal& entry) {
                       return entry.name == name && entry.module == module;
                     });
}

bool IsDType(absl::string_view module, absl::string_view name) {
  return module == "torch" && DTypeFromTorchName(name).has_value();
}

// The storage classes, including those of quantized tensors: such a tensor is
// then refused, or left out, by the name in the state dict.
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
         Has(kInert, module, name) || Has(kDTensor, module, name) ||
         IsAttributeDict(module, name) || IsDType(module, name) ||
         IsStorageClass(module, name);
}

bool IsCodeGlobal(absl::string_view module, absl::string_view name) {
  const auto is_code_module = [](absl::string_view part) {
    return std::find(std::begin(kCodeModules), std::end(kCodeModules), part) !=
           std::end(kCodeModules);
  };
  if (is_code_module(module.substr(0, module.find('.')))) return true;
  // A dotted name is looked up step by step, perhaps through other modules.
  const std::string path = absl::StrCat(module, ".", name);
  const size_t last = path.rfind('.');
  if (Has(kCode, path.substr(0, last), path.substr(last + 1))) return true;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  return std::any_of(parts.begin(), parts.end() - 1, is_code_module);
}

bool IsMetadataGlobal(absl::string_view module, absl::string_view name) {
  return Has(kCommon, module, name) || Has(kMetadata, module, name) ||
         IsDType(module, name);
}

}  // namespace dcp
