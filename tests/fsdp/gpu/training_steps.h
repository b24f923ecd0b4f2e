// SPDX-License-Identifier: Apache-2.0
// The steps of gpu_steps about training: the numbers are those of training
// without what the step is about. Each is called once in a process, on the
// thread that trains, and throws what LibTorch throws.
#ifndef TESTS_FSDP_GPU_TRAINING_STEPS_H_
#define TESTS_FSDP_GPU_TRAINING_STEPS_H_

#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/gpu/step_result.h"

namespace fsdp::testing {

// Training under fully_shard, with NCCL on a GPU and Gloo on a CPU, has the
// losses of the plain model on the CPU.
StepResult CheckEqualToCpu(const CheckDevice& device);

// Streams and events change no number, and the peak of memory is the same in
// every step, because no buffer's life depends on the allocator's
// recordStream.
StepResult CheckMemory(const CheckDevice& device);

// bfloat16, float8 and shards in the CPU's memory, which is pinned on a GPU.
StepResult CheckPrecision(const CheckDevice& device);

// Two ranks that share the device, whose collectives go over the host: float32,
// bfloat16, and HSDP with accumulation. Both ranks of the job call it.
StepResult CheckRanks(const CheckDevice& device);

// The rules of tensor, sequence and loss parallelism, on an axis of one rank.
StepResult CheckParallel(const CheckDevice& device);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_TRAINING_STEPS_H_
