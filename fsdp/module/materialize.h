// SPDX-License-Identifier: Apache-2.0
// Gives a module memory and equal values: to_empty, which moves a module from
// the meta device to a real one, and broadcast_module. Names are torch's. For
// the thread that trains.
#ifndef FSDP_MODULE_MATERIALIZE_H_
#define FSDP_MODULE_MATERIALIZE_H_

#include <cstdint>
#include <memory>

#include "c10/core/Device.h"
#include "fsdp/mesh/process_group.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

// Gives parameters and buffers memory on `device`; sharded parameters only for
// this rank's part (with CPU offload: on the CPU, whatever `device` is).
// Floating tensors are NaN until something is written into them, such as a
// buffer that a checkpoint lacks; others are not initialised. Tensors stay the
// same objects, so members, ties and optimizers stay valid; gradients are
// dropped. Then use fsdp::init or load a checkpoint.
void to_empty(torch::nn::Module& module, c10::Device device);

// Replaces parameters and buffers with those on rank `src` in `group`, so that
// replicas are equal. `group` is the whole world for a module that is not
// sharded, and the replicate axis under HSDP, where shards are sent. Collective
// over `group`, one broadcast per tensor. Throws c10::ValueError, on every
// rank, for a rank that the group lacks, for tensors on the meta device, and
// for a group in which ranks hold different parts of a parameter.
void broadcast_module(torch::nn::Module& module, const ProcessGroup& group,
                      int64_t src = 0);

template <typename Impl>
void to_empty(const torch::nn::ModuleHolder<Impl>& module, c10::Device device) {
  to_empty(static_cast<torch::nn::Module&>(*module.ptr()), device);
}
template <typename Impl>
void broadcast_module(const torch::nn::ModuleHolder<Impl>& module,
                      const ProcessGroup& group, int64_t src = 0) {
  broadcast_module(static_cast<torch::nn::Module&>(*module.ptr()), group, src);
}

}  // namespace fsdp

#endif  // FSDP_MODULE_MATERIALIZE_H_
