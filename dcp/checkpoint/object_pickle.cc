#include "dcp/checkpoint/object_pickle.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_copy.h"

namespace dcp {

Value RebuildObject(ValueArena& arena, const ObjectEntry& object,
                    absl::FunctionRef<size_t(const TensorEntry&)> add_storage) {
  return CopyValue(arena, object.value,
                   [&](const Value& value) -> std::optional<Value> {
                     const auto it = object.tensors.find(value.identity());
                     if (it == object.tensors.end()) return std::nullopt;
                     const TensorEntry& tensor = it->second;
                     return MakeTensor(arena, tensor.dtype, tensor.shape,
                                       tensor.requires_grad,
                                       absl::StrCat(add_storage(tensor)));
                   });
}

Payload WholePayload(const TensorEntry& tensor, SourceFiles* files,
                     DType dtype) {
  return {.stored = &tensor,
          .files = files,
          .box = WholeBox(tensor.shape),
          .dtype = dtype};
}

}  // namespace dcp
