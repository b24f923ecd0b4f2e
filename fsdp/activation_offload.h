// ActivationOffload: while it lives, what a forward of this thread saves for
// backward goes to the memory of the CPU, and comes back when backward needs
// it. PyTorch's torch.autograd.graph.save_on_cpu, which its offload_wrapper
// puts around a module. For the thread that runs forward, which makes it and
// ends it; backward may come later, and on other threads. Of several the newest
// that lives counts; they may end in any order.
//
//   {
//     const fsdp::ActivationOffload offload;
//     loss = loss_of(model->forward(x));
//   }
//   loss.backward();
//
// Parameters under fully_shard stay where they are: they are freed and gathered
// again in any case. What activation checkpointing computes again in backward
// is not offloaded; the inputs that it keeps are. Numbers do not change.
// Tensors on the CPU are kept as they are.
#ifndef FSDP_ACTIVATION_OFFLOAD_H_
#define FSDP_ACTIVATION_OFFLOAD_H_

#include <cstdint>

namespace fsdp {

class ActivationOffload {
 public:
  // With `pin_memory`, what comes from an accelerator lies in pinned memory,
  // and comes back while others compute.
  explicit ActivationOffload(bool pin_memory = true);
  ~ActivationOffload();
  ActivationOffload(const ActivationOffload&) = delete;
  ActivationOffload& operator=(const ActivationOffload&) = delete;

  // Of all tensors that were saved since it was made, however often each.
  uint64_t num_saved_bytes() const { return num_saved_bytes_; }

 private:
  friend class OffloadingEngine;

  const bool pin_memory_;
  uint64_t num_saved_bytes_ = 0;
  ActivationOffload* outer_;  // of this thread, which it stands in for
};

}  // namespace fsdp

#endif  // FSDP_ACTIVATION_OFFLOAD_H_
