// SPDX-License-Identifier: Apache-2.0
// Marks copies that stand for views. The mark is the storage. The copy's views
// share it, so that nothing has to follow them; the lazy key brings operators
// on them to the handler. A copy that is in parts on another axis has no
// storage: there the mark is on the part.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/view_copy.h"

#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "c10/core/StorageImpl.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/parallel/spmd/sharded.h"

namespace fsdp::spmd {
namespace {

class ViewCopyStorage final : public c10::StorageImpl {
 public:
  // Shares `memory`. `op` copied a part when the part's counter was `written`.
  ViewCopyStorage(const c10::Storage& memory, std::string op, Layout layout,
                  c10::VariableVersion written)
      : c10::StorageImpl(
            use_byte_size_t(), static_cast<int64_t>(memory.nbytes()),
            at::DataPtr(
                memory.mutable_data(), new c10::Storage(memory),
                [](void* owned) { delete static_cast<c10::Storage*>(owned); },
                memory.device()),
            /*allocator=*/nullptr, /*resizable=*/false),
        op_(std::move(op)),
        layout_(layout),
        written_(std::move(written)),
        version_(written_.enabled() ? written_.current_version() : 0) {}

  const std::string& op() const { return op_; }
  const Layout& layout() const { return layout_; }
  bool is_stale() const {
    return written_.enabled() && written_.current_version() != version_;
  }

 private:
  const std::string op_;
  const Layout layout_;
  const c10::VariableVersion written_;
  const uint32_t version_;
};

// The tensor that holds this rank's elements, under all axes.
const at::Tensor& InnermostPart(const at::Tensor& tensor) {
  const at::Tensor* part = &tensor;
  while (const Sharded* sharded = AsSharded(*part)) part = &sharded->local;
  return *part;
}

const ViewCopyStorage* FindCopyStorage(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const at::Tensor& part = InnermostPart(tensor);
  if (!HasLazyKey(part) || !part.has_storage()) return nullptr;
  const c10::StorageImpl* storage = part.storage().unsafeGetStorageImpl();
  return typeid(*storage) == typeid(ViewCopyStorage)
             ? static_cast<const ViewCopyStorage*>(storage)
             : nullptr;
}

// Whether the operator returns a view of `part` on one device. If it may return
// a copy as well, that depends on the strides.
bool MakesView(const std::string& name, const at::Tensor& part) {
  static const auto* if_contiguous = new std::unordered_set<std::string>{
      "aten::contiguous", "aten::flatten", "aten::ravel",  "aten::reshape",
      "aten::reshape_as", "aten::to",      "aten::type_as"};
  return if_contiguous->count(name) == 0 || part.is_contiguous();
}

template <typename Function>
void ForEachTensor(const c10::IValue& value, Function function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) function(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) function(element.toTensor());
    }
  }
}

}  // namespace

void MarkViewCopies(const Call& call, Values& results) {
  const auto& returns = call.schema().returns();
  for (size_t i = 0; i < results.size() && i < returns.size(); ++i) {
    const c10::AliasInfo* alias = returns[i].alias_info();
    if (alias == nullptr || alias->isWrite() || !call.has_tensor(0)) continue;
    // Operators that return views return views of the first argument.
    const Sharded* of = AsSharded(call.arg(0).toTensor());
    if (of == nullptr || of->param != nullptr || !of->layout.is_shard()) {
      continue;
    }
    const at::Tensor& part = InnermostPart(of->local);
    if (!MakesView(call.name(), part)) continue;
    ForEachTensor(results[i], [&](const at::Tensor& result) {
      if (!result.defined() || result.dtype() != part.dtype()) return;
      // The result's part is a view of the argument's part.
      const Sharded* in_parts = AsSharded(result);
      if (in_parts != nullptr && in_parts->axis == call.axis()) return;
      const at::Tensor& copy = InnermostPart(result);
      if (!copy.has_storage() || copy.is_alias_of(part)) return;
      copy.unsafeGetTensorImpl()->set_storage_keep_dtype(
          c10::Storage(c10::make_intrusive<ViewCopyStorage>(
              copy.storage(), call.name(), of->layout,
              part.unsafeGetTensorImpl()->version_counter())));
      AddLazyKey(copy);
    });
  }
}

bool IsViewCopy(const at::Tensor& tensor) {
  return FindCopyStorage(tensor) != nullptr;
}

void CheckViewCopies(const c10::FunctionSchema& schema,
                     c10::ArrayRef<c10::IValue> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    ForEachTensor(args[i], [&](const at::Tensor& tensor) {
      const ViewCopyStorage* copy = FindCopyStorage(tensor);
      if (copy == nullptr) return;
      TORCH_CHECK_NOT_IMPLEMENTED(
          !writes, schema.name(), " writes into the result of ", copy->op(),
          " of an activation that lies in parts as ", to_string(copy->layout()),
          ". The result is a copy of gathered parts, so the activation would "
          "not get the new values. Write into fsdp::full_tensor(x), and go on "
          "with that, or make the new activation with torch::cat or "
          "torch::where");
      TORCH_CHECK_NOT_IMPLEMENTED(
          !copy->is_stale(), schema.name(), " reads the result of ", copy->op(),
          " of an activation that lies in parts as ", to_string(copy->layout()),
          " and has been written into since. The result is a copy of gathered "
          "parts, which still has the old values. Call ",
          copy->op(), " again, after the write");
    });
  }
}

}  // namespace fsdp::spmd
