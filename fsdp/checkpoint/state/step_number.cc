// SPDX-License-Identifier: Apache-2.0
// Recognizes the tensor by the storage, which views share.
//
// Tested by tests/fsdp/checkpoint/state_dict_optimizer_test.cc.
#include "fsdp/checkpoint/state/step_number.h"

#include <cmath>
#include <typeinfo>
#include <utility>

#include "ATen/ops/full.h"
#include "c10/core/StorageImpl.h"

namespace fsdp {
namespace {

class StepStorage final : public c10::StorageImpl {
 public:
  StepStorage(const c10::Storage& memory, std::shared_ptr<StepCounter*> place)
      : c10::StorageImpl(
            use_byte_size_t(), static_cast<int64_t>(memory.nbytes()),
            memory.set_data_ptr(at::DataPtr(nullptr, memory.device())),
            /*allocator=*/nullptr, /*resizable=*/false),
        place_(std::move(place)) {}

  // Null once the state is gone.
  StepCounter* counter() const { return *place_; }

 private:
  const std::shared_ptr<StepCounter*> place_;
};

}  // namespace

StepCounter* FindStepCounter(torch::optim::OptimizerParamState& state) {
  return dynamic_cast<StepCounter*>(&state);
}

at::Tensor StepTensor(StepCounter& counter) {
  at::Tensor step = at::full({}, static_cast<double>(counter.number()),
                             at::TensorOptions(at::kFloat));
  step.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(
      c10::make_intrusive<StepStorage>(step.storage(), counter.place())));
  return step;
}

void StepWasLoaded(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (typeid(*storage) != typeid(StepStorage)) return;
  StepCounter* counter = static_cast<const StepStorage*>(storage)->counter();
  if (counter == nullptr) return;
  counter->number() = std::llround(tensor.item<double>());
}

}  // namespace fsdp
