// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/object_pickle.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {

Value RebuildObject(ValueArena& arena, const ObjectEntry& object,
                    absl::FunctionRef<size_t(const TensorEntry&)> add_storage) {
  ValueCopier* around = nullptr;
  const auto rebuild = [&](const Value& value) -> std::optional<Value> {
    const auto it = object.tensors.find(value.identity());
    if (it == object.tensors.end()) return std::nullopt;
    const std::string key = absl::StrCat(add_storage(it->second));
    if (!IsTensor(value)) return RenameStorage(arena, value, key);
    return ReplaceElements(
        arena, value, it->second.dtype, key,
        [&](const Value& part) { return around->Copy(part); });
  };
  ValueCopier copier(arena, rebuild);
  around = &copier;
  return copier.Copy(object.value);
}

Payload WholePayload(const TensorEntry& tensor, SourceFiles* files,
                     DType dtype) {
  return {.stored = &tensor,
          .files = files,
          .box = WholeBox(tensor.shape),
          .dtype = dtype};
}

}  // namespace dcp
