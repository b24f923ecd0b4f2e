// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator for LibTorch: tensors on "cuda" without a GPU, for
// tests of code that works with streams. See README.md. It takes the place of
// libtorch_cuda.so in a process that does not load that, when the environment
// has TESSERA_SIM_DEVICE=1.
//
// This header is what a test asks. Any thread.
#ifndef TESTS_TESTING_SIM_DEVICE_SIM_DEVICE_H_
#define TESTS_TESTING_SIM_DEVICE_SIM_DEVICE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "tests/testing/sim_device/block_pool.h"
#include "tests/testing/sim_device/options.h"

namespace sim {

// What was found since the last call; each pair of operators once.
std::vector<std::string> TakeRaces();
// How often the host waited for a stream since the last call, by what made it
// wait: "aten::item", "copy to host".
std::map<std::string, int64_t> TakeHostWaits();
// Operators that were run when they were issued, since the last call, because
// LibTorch has nothing that tells the shapes of their results: they hide
// missing waits.
std::map<std::string, int64_t> TakeEagerOperators();

MemoryStats memory_stats(c10::DeviceIndex device = 0);
void ResetPeakMemory(c10::DeviceIndex device = 0);

// For reports.
void NameStream(c10::Stream stream, const std::string& name);
// A stream of the device's pool.
c10::Stream NewStream(c10::DeviceIndex device = 0);
// Makes later work on `waiter` wait for what is issued on `on` so far.
void WaitFor(c10::Stream waiter, c10::Stream on);
// Waits on the host for all that was issued on the device. Not counted.
void Finish(c10::DeviceIndex device = 0);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_SIM_DEVICE_H_
