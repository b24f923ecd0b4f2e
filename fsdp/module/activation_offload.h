// SPDX-License-Identifier: Apache-2.0
// ActivationOffload: while it lives, the tensors that this thread's forward
// saves for backward go to CPU memory. They come back when backward needs them.
// It is PyTorch's torch.autograd.graph.save_on_cpu, which PyTorch's
// offload_wrapper puts around a module. For the thread that runs forward, which
// makes it and ends it; backward may come later, and on other threads. If
// several are alive, the newest counts; they may end in any order.
//
//   {
//     const fsdp::ActivationOffload offload;
//     loss = loss_of(model->forward(x));
//   }
//   loss.backward();
//
// Parameters under fully_shard stay in place: they are freed and gathered again
// in any case. Where activation checkpointing computes again in backward, only
// the inputs that it keeps are offloaded. Numbers do not change. Tensors on the
// CPU are kept as they are.
//
// On an accelerator each device has one more stream, which copies while the
// device computes; the host waits for none of the copies. At most 256 MiB of
// saved tensors stay in device memory until they are copied: above that, the
// device waits for the oldest copy. While backward uses one tensor, those saved
// just before it are fetched, at most 256 MiB and 64 tensors ahead. So this
// takes up to two windows in each device's memory, the same in every step. The
// host has to wait
//   - without `pin_memory`;
//   - for saved tensors that are sparse, which are not copied to pinned memory;
//   - in the first step, for the system to provide pinned memory, which
//     PyTorch keeps for the next steps. It rounds each tensor's size up to a
//     power of two.
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

  // The bytes in all tensors saved since construction; a tensor that is saved
  // twice counts twice.
  uint64_t num_saved_bytes() const { return num_saved_bytes_; }

 private:
  friend class OffloadingEngine;

  const bool pin_memory_;
  uint64_t num_saved_bytes_ = 0;
  ActivationOffload* outer_;  // the one before it on this thread
};

}  // namespace fsdp

#endif  // FSDP_MODULE_ACTIVATION_OFFLOAD_H_
