// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_tensor.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// A view that repeats storage elements may not have more elements than this.
constexpr uint64_t kMaxExpandedElements = uint64_t{1} << 31;

absl::Status BadTensor(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("tensor: ", what));
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("tensor: ", what, " is not supported"));
}

// A rebuild function and the arguments.
struct Rebuild {
  Value function;
  absl::Span<const Value> args;
  // The outermost _rebuild_parameter's value, which overrides the tensor's.
  std::optional<bool> requires_grad = std::nullopt;
};

bool IsRebuildFunction(const Value& function) {
  if (!function.is(Kind::kGlobal)) return false;
  return function.IsGlobal("torch._tensor", "_rebuild_from_type_v2") ||
         (function.module() == "torch._utils" &&
          absl::StartsWith(function.name(), "_rebuild_"));
}

bool IsDTensor(const Value& type) {
  return type.IsGlobal("torch.distributed.tensor", "DTensor") ||
         type.IsGlobal("torch.distributed._tensor.api", "DTensor");
}

// A DTensor's local tensor, if it is the whole tensor. `args` are the arguments
// of _rebuild_from_type_v2.
absl::StatusOr<Value> WholeLocalTensor(absl::Span<const Value> args) {
  constexpr size_t kSizeArgument = 2;
  const Value local = AttributeInState(args[3], "_local_tensor");
  const Value spec = AttributeInState(args[3], "_spec");
  if (!IsTensor(local) || !spec.is(Kind::kCall) ||
      args[2].items().size() <= kSizeArgument) {
    return BadTensor("the DTensor has unexpected attributes");
  }
  const Value placements = ObjectAttribute(spec, "placements");
  if (!placements.is(Kind::kTuple))
    return BadTensor("the DTensor has no placements");
  for (const Value& placement : placements.items()) {
    const absl::string_view name =
        placement.is(Kind::kCall) ? placement.callable().name() : "";
    if (name != "Shard" && name != "Replicate" && name != "_StridedShard") {
      return Unsupported("a DTensor with Partial placements");
    }
  }
  DCP_ASSIGN_OR_RETURN(
      const Dims whole,
      ParseTensorSizes(args[2].items()[kSizeArgument], "its size"));
  DCP_ASSIGN_OR_RETURN(const TorchTensor part, ParseTensor(local));
  if (part.sizes == whole) return local;
  return absl::UnimplementedError(absl::StrCat(
      "tensor: this is one rank's part, of shape ", ShapeToString(part.sizes),
      ", of a DTensor of shape ", ShapeToString(whole),
      ": save it from all ranks with torch.distributed.checkpoint, or save its "
      "full_tensor()"));
}

// Removes the wrappers: parameters, and tensors of a subclass or with
// attributes. A tensor has at most a few wrappers.
absl::StatusOr<Rebuild> Unwrap(const Value& value, TorchTensor& tensor) {
  constexpr int kMaxWrappers = 4;
  Rebuild call = {value.callable(), value.args().items()};
  for (int depth = 0; depth <= kMaxWrappers; ++depth) {
    const bool with_state =
        call.function.IsGlobal("torch._utils", "_rebuild_parameter_with_state");
    if (with_state ||
        call.function.IsGlobal("torch._utils", "_rebuild_parameter")) {
      if (call.args.size() != (with_state ? 4u : 3u) ||
          !call.args[1].is(Kind::kBool) || !IsTensor(call.args[0])) {
        return BadTensor("the Parameter has unexpected arguments");
      }
      tensor.is_parameter = true;
      if (!call.requires_grad.has_value()) {
        call.requires_grad = call.args[1].bool_value();
      }
      const Value data = call.args[0];
      call = {data.callable(), data.args().items(), call.requires_grad};
    } else if (call.function.IsGlobal("torch._tensor",
                                      "_rebuild_from_type_v2")) {
      if (call.args.size() != 4 || !call.args[2].is(Kind::kTuple)) {
        return BadTensor("_rebuild_from_type_v2 has unexpected arguments");
      }
      if (IsDTensor(call.args[1])) {
        DCP_ASSIGN_OR_RETURN(const Value local, WholeLocalTensor(call.args));
        call = {local.callable(), local.args().items(), call.requires_grad};
        continue;
      }
      if (call.args[1].IsGlobal("torch.nn.parameter", "Parameter")) {
        tensor.is_parameter = true;
      } else if (!call.args[1].IsGlobal("torch", "Tensor") &&
                 !call.args[1].IsGlobal("torch.nn.parameter", "Buffer")) {
        return Unsupported(absl::StrCat("a subclass ", ToString(call.args[1])));
      }
      if (!IsRebuildFunction(call.args[0])) {
        return BadTensor("_rebuild_from_type_v2 has unexpected arguments");
      }
      call = {call.args[0], call.args[2].items(), call.requires_grad};
    } else {
      return call;
    }
  }
  return BadTensor(absl::StrCat("more than ", kMaxWrappers, " wrappers"));
}

// A count of elements or bytes.
absl::StatusOr<uint64_t> Count(const Value& value, absl::string_view what) {
  if (!value.is(Kind::kInt) || value.int_value() < 0) {
    return BadTensor(
        absl::StrCat(what, " is not a count: ", ToString(value, 40)));
  }
  return static_cast<uint64_t>(value.int_value());
}

// The storage that a persistent id names.
struct Storage {
  absl::string_view key;
  absl::string_view location;
  DType dtype = DType::kUInt8;  // according to the class
  bool typed = false;
  uint64_t offset = 0;       // where a legacy file's view begins,
  uint64_t numel = 0;        // how long it is, and
  uint64_t total_numel = 0;  // the total length, in elements of `dtype`
};

absl::Status ParseStorageClass(const Value& value, Storage& storage) {
  if (!value.is(Kind::kGlobal)) {
    return BadTensor(
        absl::StrCat("the storage class is ", ToString(value, 60)));
  }
  if (value.name() == "UntypedStorage" && value.module() == "torch.storage") {
    return absl::OkStatus();
  }
  const std::optional<DType> dtype = DTypeFromStorageClassName(value.name());
  if (dtype.has_value() &&
      (value.module() == "torch" || value.module() == "torch.cuda")) {
    storage.typed = true;
    storage.dtype = *dtype;
    return absl::OkStatus();
  }
  return Unsupported(absl::StrCat("the storage class ", ToString(value, 60)));
}

// The sixth element of an id in a legacy file: None, or the key, offset and
// length for a storage that is a piece of another.
absl::Status ParseStorageView(const Value& view, Storage& storage) {
  if (view.is_none()) return absl::OkStatus();
  if (!view.is(Kind::kTuple) || view.items().size() != 3) {
    return BadTensor(
        "the view of a storage is not a key, an offset and a length");
  }
  DCP_ASSIGN_OR_RETURN(storage.offset,
                       Count(view.items()[1], "the offset of a view"));
  DCP_ASSIGN_OR_RETURN(storage.numel,
                       Count(view.items()[2], "the length of a view"));
  const std::optional<uint64_t> end = CheckedAdd(storage.offset, storage.numel);
  if (!end.has_value() || *end > storage.total_numel) {
    return BadTensor("the view of a storage reaches past its end");
  }
  return absl::OkStatus();
}

// ("storage", class, key, location, length[, view]).
absl::StatusOr<absl::Span<const Value>> ParseStorageId(const Value& value) {
  if (!value.is(Kind::kPersistent) || !value.persistent_id().is(Kind::kTuple)) {
    return BadTensor("its storage is not a persistent id");
  }
  const absl::Span<const Value> id = value.persistent_id().items();
  if ((id.size() != 5 && id.size() != 6) || !id[0].is(Kind::kStr) ||
      id[0].text() != "storage" || !id[2].is(Kind::kStr) ||
      !id[3].is(Kind::kStr)) {
    return BadTensor(
        absl::StrCat("the id of its storage is ", ToString(value, 80)));
  }
  return id;
}

absl::StatusOr<Storage> ParseTensorStorage(const Value& value) {
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> id, ParseStorageId(value));
  Storage storage;
  DCP_RETURN_IF_ERROR(ParseStorageClass(id[1], storage));
  storage.key = id[2].text();
  storage.location = id[3].text();
  if (id[3].text() == "meta") return Unsupported("a storage without data");
  DCP_ASSIGN_OR_RETURN(storage.total_numel,
                       Count(id[4], "the length of its storage"));
  storage.numel = storage.total_numel;
  if (id.size() == 6) {
    DCP_RETURN_IF_ERROR(ParseStorageView(id[5], storage));
  }
  return storage;
}

// Backward hooks are code; pickles that we accept have none.
absl::Status CheckNoHooks(const Value& hooks) {
  const bool empty = hooks.is_none() ||
                     (IsMapping(hooks) && hooks.items().empty() &&
                      (hooks.is(Kind::kDict) || (hooks.args().items().empty() &&
                                                 hooks.elements().empty())));
  return empty ? absl::OkStatus() : BadTensor("it has backward hooks");
}

absl::Status ParseFlags(const Value& flags, TorchTensor& tensor) {
  if (flags.is_none()) return absl::OkStatus();
  if (!flags.is(Kind::kDict)) return BadTensor("its flags are not a dict");
  for (size_t i = 0; i < flags.items().size(); i += 2) {
    const Value& key = flags.items()[i];
    const Value& value = flags.items()[i + 1];
    if (!key.is(Kind::kStr) || !value.is(Kind::kBool)) {
      return BadTensor("its flags are not a dict from str to bool");
    }
    if (key.text() == "conj") {
      tensor.conj = value.bool_value();
    } else if (key.text() == "neg") {
      tensor.neg = value.bool_value();
    } else if (value.bool_value()) {
      return Unsupported(absl::StrCat("the flag ", ToString(key, 40)));
    }
  }
  return absl::OkStatus();
}

// Checks that the view lies inside the storage. Sets the offset and the length,
// in bytes, of the part that the tensor may touch.
absl::Status CheckBounds(const Storage& storage, uint64_t offset,
                         TorchTensor& tensor) {
  const uint64_t element = ElementSize(tensor.dtype);
  const uint64_t storage_element = ElementSize(storage.dtype);
  const std::optional<uint64_t> bytes =
      CheckedMul(storage.numel, storage_element);
  const std::optional<uint64_t> total_bytes =
      CheckedMul(storage.total_numel, storage_element);
  if (!bytes.has_value() || !total_bytes.has_value() ||
      *total_bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return BadTensor(absl::StrCat("a storage of ", storage.total_numel,
                                  " elements is too large"));
  }
  tensor.storage_bytes = *total_bytes;
  std::optional<uint64_t> volume = 1;
  std::optional<uint64_t> last = offset;
  bool empty = false;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const uint64_t size = static_cast<uint64_t>(tensor.sizes[i]);
    empty = empty || size == 0;
    // Counts 0 as 1, so that strides computed from the shape fit as well.
    if (volume.has_value()) {
      volume = CheckedMul(*volume, std::max(size, uint64_t{1}));
    }
    const std::optional<uint64_t> reach = CheckedMul(
        size == 0 ? 0 : size - 1, static_cast<uint64_t>(tensor.strides[i]));
    last = last.has_value() && reach.has_value() ? CheckedAdd(*last, *reach)
                                                 : std::nullopt;
  }
  if (!volume.has_value() ||
      *volume > uint64_t{std::numeric_limits<int64_t>::max()} / element) {
    return BadTensor(
        absl::StrCat("shape ", ShapeToString(tensor.sizes), " is too large"));
  }
  if (empty) return absl::OkStatus();
  const uint64_t num_stored = *bytes / element;
  if (!last.has_value() || *last >= num_stored) {
    return BadTensor(
        absl::StrCat("shape ", ShapeToString(tensor.sizes), " with strides ",
                     ShapeToString(tensor.strides), " at offset ", offset,
                     " reaches past its storage of ", num_stored, " elements"));
  }
  if (*volume > num_stored && *volume > kMaxExpandedElements) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor: shape ", ShapeToString(tensor.sizes), " expands a storage of ",
        num_stored, " elements to more than ", kMaxExpandedElements,
        ", which would all be written"));
  }
  const std::optional<uint64_t> before =
      CheckedMul(storage.offset, storage_element);
  DCP_CHECK(before.has_value(), "the view was checked");
  if (*before % element != 0)
    return BadTensor("a view of a storage is misaligned");
  tensor.storage_offset = *before / element + offset;
  return absl::OkStatus();
}

absl::Status ParseArgs(const Rebuild& call, TorchTensor& tensor) {
  const absl::string_view name = call.function.name();
  size_t num_wanted = 4;  // storage, offset, size, stride
  if (name == "_rebuild_tensor_v2") num_wanted = 6;  // requires_grad, hooks
  if (name == "_rebuild_tensor_v3") num_wanted = 7;  // and dtype
  const absl::Span<const Value> args = call.args;
  // The newer two may have flags at the end.
  const bool with_flags = num_wanted > 4 && args.size() == num_wanted + 1;
  if (args.size() != num_wanted && !with_flags) {
    return BadTensor(absl::StrCat(name, " has ", args.size(), " arguments"));
  }
  DCP_ASSIGN_OR_RETURN(const Storage storage, ParseTensorStorage(args[0]));
  DCP_ASSIGN_OR_RETURN(const uint64_t offset, Count(args[1], "its offset"));
  DCP_ASSIGN_OR_RETURN(tensor.sizes, ParseTensorSizes(args[2], "its size"));
  DCP_ASSIGN_OR_RETURN(tensor.strides, ParseTensorSizes(args[3], "its stride"));
  if (tensor.sizes.size() != tensor.strides.size()) {
    return BadTensor("its shape and strides differ in length");
  }
  tensor.storage_key = storage.key;
  tensor.location = storage.location;
  tensor.dtype = storage.dtype;
  if (num_wanted > 4) {
    if (!args[4].is(Kind::kBool))
      return BadTensor("requires_grad is not a bool");
    tensor.requires_grad = args[4].bool_value();
    DCP_RETURN_IF_ERROR(CheckNoHooks(args[5]));
  }
  if (num_wanted == 7) {
    const std::optional<DType> dtype =
        args[6].is(Kind::kGlobal) && args[6].module() == "torch"
            ? DTypeFromTorchName(args[6].name())
            : std::nullopt;
    if (!dtype.has_value()) {
      return BadTensor(
          absl::StrCat("its dtype is unknown: ", ToString(args[6], 40)));
    }
    tensor.dtype = *dtype;
  }
  if (with_flags) DCP_RETURN_IF_ERROR(ParseFlags(args.back(), tensor));
  tensor.requires_grad = call.requires_grad.value_or(tensor.requires_grad);
  return CheckBounds(storage, offset, tensor);
}

}  // namespace

absl::StatusOr<Dims> ParseTensorSizes(Value value, absl::string_view what) {
  if (value.IsCallOf("torch", "Size") && value.args().items().size() == 1) {
    value = value.args().items()[0];
  }
  if (!value.is(Kind::kTuple)) {
    return BadTensor(
        absl::StrCat(what, " is not a tuple: ", KindName(value.kind())));
  }
  if (value.items().size() > kMaxDims) {
    return BadTensor(
        absl::StrCat(value.items().size(), " dimensions exceed ", kMaxDims));
  }
  Dims dims;
  for (const Value& item : value.items()) {
    DCP_ASSIGN_OR_RETURN(const uint64_t dim, Count(item, what));
    dims.push_back(static_cast<int64_t>(dim));
  }
  return dims;
}

bool IsTensor(const Value& value) {
  return value.is(Kind::kCall) && IsRebuildFunction(value.callable());
}

absl::StatusOr<TorchTensor> ParseTensor(const Value& value) {
  if (!IsTensor(value)) {
    return BadTensor(
        absl::StrCat("expected a tensor, found ", ToString(value, 60)));
  }
  TorchTensor tensor;
  DCP_ASSIGN_OR_RETURN(const Rebuild call, Unwrap(value, tensor));
  const absl::string_view name = call.function.name();
  if (name != "_rebuild_tensor" && name != "_rebuild_tensor_v2" &&
      name != "_rebuild_tensor_v3") {
    return Unsupported(name);
  }
  DCP_RETURN_IF_ERROR(ParseArgs(call, tensor));
  return tensor;
}

Value MakeTensor(ValueArena& arena, DType dtype, const Dims& sizes,
                 bool requires_grad, absl::string_view key,
                 absl::string_view location) {
  const absl::string_view storage_class = StorageClassName(dtype);
  const bool typed = !storage_class.empty();
  const int64_t numel = Volume(sizes);
  const int64_t storage_numel =
      typed ? numel : numel * static_cast<int64_t>(ElementSize(dtype));
  const Value id = arena.Tuple({
      arena.Str("storage"),
      typed ? arena.Global("torch", storage_class)
            : arena.Global("torch.storage", "UntypedStorage"),
      arena.Str(key),
      arena.Str(location),
      Value::Int(storage_numel),
  });
  const auto ints = [&](const Dims& dims) {
    absl::InlinedVector<Value, 4> values;
    for (const int64_t dim : dims) values.push_back(Value::Int(dim));
    return arena.Tuple(values);
  };
  absl::InlinedVector<Value, 7> args = {
      arena.Persistent(id),
      Value::Int(0),
      ints(sizes),
      ints(RowMajorStrides(sizes)),
      Value::Bool(requires_grad),
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({})),
  };
  if (!typed) args.push_back(arena.Global("torch", TorchName(dtype)));
  return arena.Call(arena.Global("torch._utils", typed ? "_rebuild_tensor_v2"
                                                       : "_rebuild_tensor_v3"),
                    arena.Tuple(args));
}

namespace {

// Puts `elements` in place of the innermost rebuild call in `tensor`.
Value ReplaceInnermost(ValueArena& arena, const Value& tensor,
                       const Value& elements,
                       absl::FunctionRef<Value(const Value&)> copy) {
  const Value function = tensor.callable();
  const absl::Span<const Value> args = tensor.args().items();
  std::vector<Value> copies;
  if (function.IsGlobal("torch._tensor", "_rebuild_from_type_v2")) {
    // A DTensor's facts about other ranks would be wrong for other elements.
    if (IsDTensor(args[1])) return elements;
    // (function, type, its arguments, attributes): the first and third describe
    // the inner tensor.
    const Value inner =
        ReplaceInnermost(arena, arena.Call(args[0], args[2]), elements, copy);
    copies = {inner.callable(), copy(args[1]), inner.args(), copy(args[3])};
  } else if (function.name() == "_rebuild_parameter" ||
             function.name() == "_rebuild_parameter_with_state") {
    copies.push_back(ReplaceInnermost(arena, args[0], elements, copy));
    for (const Value& arg : args.subspan(1)) copies.push_back(copy(arg));
  } else {
    return elements;
  }
  return arena.Call(copy(function), arena.Tuple(copies));
}

}  // namespace

Value ReplaceElements(ValueArena& arena, const Value& tensor, DType dtype,
                      absl::string_view key,
                      absl::FunctionRef<Value(const Value&)> copy) {
  const absl::StatusOr<TorchTensor> parsed = ParseTensor(tensor);
  DCP_CHECK(parsed.ok(), parsed.status().message());
  const Value elements = MakeTensor(
      arena, dtype, parsed->sizes,
      parsed->requires_grad && !parsed->is_parameter, key, parsed->location);
  return ReplaceInnermost(arena, tensor, elements, copy);
}

absl::StatusOr<TorchStorage> ParseStorage(const Value& value) {
  DCP_ASSIGN_OR_RETURN(const absl::Span<const Value> id, ParseStorageId(value));
  if (!id[1].is(Kind::kGlobal)) {
    return BadTensor(
        absl::StrCat("the storage class is ", ToString(id[1], 60)));
  }
  Storage storage;
  const bool known = ParseStorageClass(id[1], storage).ok();
  return TorchStorage{
      .key = id[2].text(),
      .dtype = known ? std::optional(storage.dtype) : std::nullopt};
}

Value RenameStorage(ValueArena& arena, const Value& storage,
                    absl::string_view key) {
  const absl::Span<const Value> id = storage.persistent_id().items();
  return arena.Persistent(arena.Tuple({
      arena.Str("storage"),
      arena.Global(id[1].module(), id[1].name()),
      arena.Str(key),
      arena.Str(id[3].text()),
      id[4],
  }));
}

}  // namespace dcp
