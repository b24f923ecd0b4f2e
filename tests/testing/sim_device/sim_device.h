// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator for LibTorch: tensors on "cuda" without a GPU, for
// tests of code that works with streams. See README.md. It replaces
// libtorch_cuda.so in a process that does not load it, when the environment has
// TESSERA_SIM_DEVICE=1.
//
// Tests use this header. Any thread.
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

// Races found since the last call; each pair of operators once.
std::vector<std::string> TakeRaces();
// How often the host waited for a stream since the last call, by cause:
// "aten::item", "copy to host".
std::map<std::string, int64_t> TakeHostWaits();
// Operators that ran when they were issued, since the last call, because
// LibTorch cannot tell the results' shapes in advance: they hide missing waits.
std::map<std::string, int64_t> TakeEagerOperators();

MemoryStats memory_stats(c10::DeviceIndex device = 0);
void ResetPeakMemory(c10::DeviceIndex device = 0);

// For reports.
void NameStream(c10::Stream stream, const std::string& name);
// A stream from the device's pool.
c10::Stream NewStream(c10::DeviceIndex device = 0);
// Makes later work on `waiter` wait for the work issued on `on` so far.
void WaitFor(c10::Stream waiter, c10::Stream on);
// Waits on the host for all work issued on the device. Not counted.
void Finish(c10::DeviceIndex device = 0);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_SIM_DEVICE_H_
