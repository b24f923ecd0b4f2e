// SPDX-License-Identifier: Apache-2.0
// A LibTorch optimizer's step count, an integer in each parameter's state, in
// the form of PyTorch's state dicts: a float32 tensor without dimensions. A
// load into that tensor also sets the optimizer's count, just as it sets the
// moments, which the state dict aliases. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_
#define FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_

#include <cstdint>
#include <memory>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// The part of a state to which step tensors refer. They may outlive it.
class StepCounter {
 public:
  StepCounter() = default;
  // A state's copies have separate tensors.
  StepCounter(const StepCounter&) {}
  StepCounter& operator=(const StepCounter&) { return *this; }
  virtual ~StepCounter() = default;

  // Where the state is while it lives; shared with the tensors.
  const std::shared_ptr<StepCounter*>& place() const { return place_; }
  virtual int64_t& number() = 0;

 protected:
  void Leave() { *place_ = nullptr; }

 private:
  const std::shared_ptr<StepCounter*> place_ =
      std::make_shared<StepCounter*>(this);
};

// An optimizer state with a counter; to the optimizer it is a `State`.
template <typename State>
class Counted final : public State, public StepCounter {
 public:
  Counted() = default;
  explicit Counted(const State& from) : State(from) {}
  ~Counted() override { Leave(); }
  int64_t& number() override { return State::step(); }
};

// Null for a state that was not made here.
StepCounter* FindStepCounter(torch::optim::OptimizerParamState& state);

// The number as a tensor, which StepWasLoaded recognizes.
at::Tensor StepTensor(StepCounter& counter);

// Call it when a load has filled `tensor`: if that is a StepTensor and the
// state still lives, the optimizer has the loaded number from now on.
void StepWasLoaded(const at::Tensor& tensor);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_
