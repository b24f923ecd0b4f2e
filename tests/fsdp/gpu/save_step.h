// SPDX-License-Identifier: Apache-2.0
// gpu_steps' step for checkpoints: async_save copies from the device while
// training goes on, and load copies back. Called once in a process, on the
// thread that trains; throws LibTorch's exceptions.
#ifndef TESTS_FSDP_GPU_SAVE_STEP_H_
#define TESTS_FSDP_GPU_SAVE_STEP_H_

#include <string>

#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/gpu/step_result.h"

namespace fsdp::testing {

// Writes checkpoints below `folder`, and removes them.
StepResult CheckSave(const CheckDevice& device, const std::string& folder);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_SAVE_STEP_H_
