// SPDX-License-Identifier: Apache-2.0
// The number of steps of a LibTorch optimizer, an integer in the state of each
// parameter, as PyTorch's state dicts have it: a float32 tensor of no
// dimensions. A load into that tensor counts for the optimizer, too, as it does
// for the moments, which the state dict aliases. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_
#define FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_

#include <cstdint>
#include <memory>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// The part of a state that its tensors know. They may outlive it.
class StepCounter {
 public:
  StepCounter() = default;
  // Copies of a state have tensors of their own.
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

// A state of the optimizer, which takes it for a `State`, with a counter.
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

// Call it when a load has filled `tensor`: if that is a StepTensor and its
// state still lives, the optimizer has the number from now on.
void StepWasLoaded(const at::Tensor& tensor);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_STEP_NUMBER_H_
