// ActivationOffload: while it lives, what a forward of this thread saves for
// backward goes to the memory of the CPU, and comes back when backward needs
// it. PyTorch's torch.autograd.graph.save_on_cpu, which its offload_wrapper
// puts around a module. For the thread that runs forward, which makes it and
// ends it; backward may come later, and on other threads. If several are alive,
// the newest counts; they may end in any order.
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
#ifndef FSDP_MODULE_ACTIVATION_OFFLOAD_H_
#define FSDP_MODULE_ACTIVATION_OFFLOAD_H_

#include <cstdint>

namespace fsdp {

class ActivationOffload {
 public:
  // With `pin_memory`, tensors from an accelerator are kept in pinned memory,
  // and copied back asynchronously.
  explicit ActivationOffload(bool pin_memory = true);
  ~ActivationOffload();
  ActivationOffload(const ActivationOffload&) = delete;
  ActivationOffload& operator=(const ActivationOffload&) = delete;

  // The bytes of all tensors saved since construction; one that is saved twice
  // counts twice.
  uint64_t num_saved_bytes() const { return num_saved_bytes_; }

 private:
  friend class OffloadingEngine;

  const bool pin_memory_;
  uint64_t num_saved_bytes_ = 0;
  ActivationOffload* outer_;  // the previous one of this thread
};

}  // namespace fsdp

#endif  // FSDP_MODULE_ACTIVATION_OFFLOAD_H_
