// SPDX-License-Identifier: Apache-2.0
// gpu_steps' steps for training: each feature must leave the numbers as they
// are without it. Each step is called once in a process, on the thread that
// trains, and throws LibTorch's exceptions.
#ifndef TESTS_FSDP_GPU_TRAINING_STEPS_H_
#define TESTS_FSDP_GPU_TRAINING_STEPS_H_

#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/gpu/step_result.h"

namespace fsdp::testing {

// Training under fully_shard, with NCCL on a GPU and Gloo on a CPU, has the
// plain model's losses on the CPU.
StepResult CheckEqualToCpu(const CheckDevice& device);

// Streams and events change no number, and peak memory is the same in every
// step, because no buffer's life depends on the allocator's recordStream.
StepResult CheckMemory(const CheckDevice& device);

// bfloat16, float8 and shards in the CPU's memory, which is pinned on a GPU.
StepResult CheckPrecision(const CheckDevice& device);

// Two ranks that share the device, with collectives over the host: float32,
// bfloat16, and HSDP with accumulation. Both ranks call it.
StepResult CheckRanks(const CheckDevice& device);

// The rules for tensor, sequence and loss parallelism, on an axis with one
// rank.
StepResult CheckParallel(const CheckDevice& device);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_TRAINING_STEPS_H_
