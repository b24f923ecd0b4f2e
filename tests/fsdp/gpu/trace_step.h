// SPDX-License-Identifier: Apache-2.0
// gpu_steps' step for overlap: communication runs while the device computes.
// Called once in a process, on the thread that trains; throws LibTorch's
// exceptions.
#ifndef TESTS_FSDP_GPU_TRACE_STEP_H_
#define TESTS_FSDP_GPU_TRACE_STEP_H_

#include <string>

#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/gpu/step_result.h"

namespace fsdp::testing {

// Writes two files into `folder`, which exists: fsdp_trace.json, the engine's
// own trace for one step, and profile.json, from PyTorch's profiler. Perfetto
// displays both.
StepResult CheckTrace(const CheckDevice& device, const std::string& folder);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_TRACE_STEP_H_
