// SPDX-License-Identifier: Apache-2.0
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
//
// On an accelerator each device has one more stream, which copies while the
// device computes; the host waits for none of the copies. At most 256 MiB
// of saved tensors whose copy has not ended stay in the device's memory: above
// that, the device waits for the copy of the oldest. While backward uses one
// tensor, those saved just before it are fetched, at most 256 MiB and 64
// tensors ahead. So this takes up to two windows of each device's memory, the
// same in every step. The host has to wait
//   - without `pin_memory`;
//   - for saved tensors that are sparse, which are not copied to pinned memory;
//   - in the first step, for the system to provide pinned memory, which
//     PyTorch keeps for the next steps. It rounds the size of each tensor up to
//     a power of two.
// As without offload, a saved tensor must not be modified in place. Where that
// could have changed the copy, backward throws.
#ifndef FSDP_MODULE_ACTIVATION_OFFLOAD_H_
#define FSDP_MODULE_ACTIVATION_OFFLOAD_H_

namespace fsdp {

class ActivationOffload {
 public:
  // With `pin_memory`, tensors from an accelerator are kept in pinned memory,
  // and the host waits for no copy.
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
