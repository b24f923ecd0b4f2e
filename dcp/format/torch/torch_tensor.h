// SPDX-License-Identifier: Apache-2.0
// A tensor as a torch.save pickle describes it: finds it in a Value tree,
// checks it, and builds it again for writing. Supports the rebuild functions in
// torch._utils, typed and untyped storages, and Parameters; executes none of
// them. Pure; any thread.
#ifndef DCP_FORMAT_TORCH_TORCH_TENSOR_H_
#define DCP_FORMAT_TORCH_TORCH_TENSOR_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

struct TorchTensor {
  DType dtype = DType::kFloat32;
  Dims sizes;
  Dims strides;                   // elements; not negative
  uint64_t storage_offset = 0;    // elements
  absl::string_view storage_key;  // in the Value's arena
  absl::string_view location;     // "cpu", "cuda:0", ...; likewise
  uint64_t storage_bytes = 0;     // the storage's size according to the pickle
  bool requires_grad = false;
  bool is_parameter = false;
  bool conj = false;  // the stored bytes are not yet conjugated
  bool neg = false;   // the stored bytes are not yet negated
};

// True when `value` is a call of a tensor rebuild function (also inside
// _rebuild_parameter and _rebuild_from_type_v2), valid or not.
bool IsTensor(const Value& value);

// The tensor that `value` describes, with every bound checked: the view lies
// inside the storage and the element count fits. DataLoss, or Unimplemented for
// sparse, quantized, nested and meta tensors, and for an expansion bomb: a
// stride of 0 over more elements than the storage has, beyond 2^31 elements.
absl::StatusOr<TorchTensor> ParseTensor(const Value& value);

// A torch.Size or a tuple of ints that are not negative: sizes or strides.
// `what` names it in the error, DataLoss.
absl::StatusOr<Dims> ParseTensorSizes(Value value, absl::string_view what);

// The pickle form of a contiguous tensor that fills storage `key` ("0"), as
// torch.save writes it: _rebuild_tensor_v2 with a typed storage, or v3 for
// dtypes without one.
Value MakeTensor(ValueArena& arena, DType dtype, const Dims& sizes,
                 bool requires_grad, absl::string_view key,
                 absl::string_view location = "cpu");

// `tensor`, which ParseTensor accepts, with contiguous elements of `dtype` in a
// separate storage `key`. A Parameter or a tensor with attributes stays one.
// `copy` copies all values around the elements into `arena`.
Value ReplaceElements(ValueArena& arena, const Value& tensor, DType dtype,
                      absl::string_view key,
                      absl::FunctionRef<Value(const Value&)> copy);

// The facts about a storage in a persistent id.
struct TorchStorage {
  absl::string_view key;  // in the Value's arena
  // The class's dtype; nullopt if the class has none, as for quantized tensors.
  // An untyped storage has bytes.
  std::optional<DType> dtype;
};

// DataLoss when `value` is not a storage's persistent id.
absl::StatusOr<TorchStorage> ParseStorage(const Value& value);

// The same storage under another key, in the form for zip archives.
Value RenameStorage(ValueArena& arena, const Value& storage,
                    absl::string_view key);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_TORCH_TENSOR_H_
