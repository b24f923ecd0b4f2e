// SPDX-License-Identifier: Apache-2.0
// The callback is registered while at least one watch lives. Getting an
// operator's schema is expensive, so the callback first checks whether any
// input is a watched tensor.
//
// Tested by tests/fsdp/checkpoint/write_during_save_test.cc.
#include "fsdp/engine/lazy/write_watch.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ATen/record_function.h"
#include "fsdp/engine/lazy/operator_schema.h"

namespace fsdp {
namespace {

const c10::StorageImpl* StorageKey(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

struct WriteWatch::Entry {
  std::unordered_set<const c10::StorageImpl*> storages;
  std::function<void()> wait;

  bool Has(const at::Tensor& tensor) const {
    const c10::StorageImpl* storage = StorageKey(tensor);
    return storage != nullptr && storages.count(storage) != 0;
  }
  bool Has(const c10::IValue& value) const {
    if (value.isTensor()) return Has(value.toTensor());
    if (!value.isList()) return false;
    // Collectives take lists of lists.
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    return std::any_of(
        list.begin(), list.end(),
        [&](const c10::IValue& element) { return Has(element); });
  }
};

struct WriteWatch::Registry {
  using Entries = std::vector<std::shared_ptr<const Entry>>;

  std::mutex mutex;  // guards the members below
  Entries entries;
  at::CallbackHandle callback = 0;

  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }

  Entries Current() {
    const std::lock_guard<std::mutex> lock(mutex);
    return entries;
  }

  static std::unique_ptr<at::ObserverContext> BeforeOperator(
      const at::RecordFunction& op) {
    const c10::ArrayRef<const c10::IValue> inputs = op.inputs();
    std::optional<c10::FunctionSchema> schema;
    for (const auto& entry : Get().Current()) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!entry->Has(inputs[i])) continue;
        if (!schema.has_value()) schema = op.operator_schema();
        if (!schema.has_value() || i >= schema->arguments().size()) break;
        if (!WritesArgument(*schema, i)) continue;
        entry->wait();
        break;
      }
    }
    return nullptr;
  }
};

WriteWatch::WriteWatch(const std::vector<at::Tensor>& tensors,
                       std::function<void()> wait) {
  auto entry = std::make_shared<Entry>();
  for (const at::Tensor& tensor : tensors) {
    entry->storages.insert(StorageKey(tensor));
  }
  entry->wait = std::move(wait);
  entry_ = std::move(entry);
  Registry& registry = Registry::Get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.entries.push_back(entry_);
  if (registry.entries.size() > 1) return;
  registry.callback = at::addGlobalCallback(
      at::RecordFunctionCallback(&Registry::BeforeOperator)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

WriteWatch::~WriteWatch() {
  Registry& registry = Registry::Get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::erase(registry.entries, entry_);
  if (registry.entries.empty()) at::removeCallback(registry.callback);
}

void WriteWatch::AwaitReaders(const at::Tensor& tensor) {
  for (const auto& entry : Registry::Get().Current()) {
    if (entry->Has(tensor)) entry->wait();
  }
}

}  // namespace fsdp
