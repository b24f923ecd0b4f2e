// SPDX-License-Identifier: Apache-2.0
// The parts that LibTorch requires of a device: guard, allocators, hooks and
// random numbers. All register themselves before main, when the simulation is
// enabled.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/CachingHostAllocator.h"
#include "ATen/core/Generator.h"
#include "ATen/detail/CUDAHooksInterface.h"
#include "ATen/ops/empty.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "tests/testing/sim_device/generator.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/sim_device.h"
#include "tests/testing/sim_device/simulation.h"

namespace sim {
namespace {

c10::DeviceIndex DeviceIndex(c10::Device device) {
  return device.has_index() ? device.index() : CurrentDevice();
}

// --- Allocators ------------------------------------------------------------

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return Simulation::Get().Allocate(CurrentStream(CurrentDevice()), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t count) const override {
    std::memcpy(dst, src, count);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    Simulation::Get().EmptyCache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) Simulation::Get().RecordUse(data.get(), stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    const MemoryStats memory = memory_stats(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = memory.allocated;
    stats.allocated_bytes[0].peak = memory.peak;
    stats.reserved_bytes[0].current = memory.reserved;
    stats.reserved_bytes[0].peak = memory.reserved;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    ResetPeakMemory(device);
  }
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return Simulation::Get().AllocatePinned(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t count) const override {
    std::memcpy(dst, src, count);
  }
  bool record_event(void* data, void* /*context*/,
                    c10::Stream stream) override {
    Simulation::Get().RecordUse(data, stream);
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

DeviceAllocator& TheDeviceAllocator() {
  static auto* const allocator = new DeviceAllocator;
  return *allocator;
}

PinnedAllocator& ThePinnedAllocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

// --- The guard -------------------------------------------------------------

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {kType, CurrentDevice()}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(!device.has_index() || device.index() < deviceCount(),
                "the simulated devices are ", static_cast<int>(deviceCount()),
                " (SIM_DEVICES), and none of them is ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) SetCurrentDevice(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(DeviceIndex(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return DefaultStream(DeviceIndex(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device,
                                      bool high_priority) const override {
    return Simulation::Get().StreamFromPool(DeviceIndex(device), high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = CurrentStream(stream.device_index());
    SetCurrentStream(stream);
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(options().num_devices);
  }

  void record(void** event, const c10::Stream& stream,
              c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Simulation::Event;
    Simulation::Get().Record(EventAt(*event), stream);
  }
  void destroyEvent(void* event,
                    c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Simulation::Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Simulation::Get().MakeWait(stream, EventAt(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Simulation::Get().Query(EventAt(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Simulation::Get().Synchronize(EventAt(event));
  }
  double elapsedTime(void* from, void* to,
                     c10::DeviceIndex /*device*/) const override {
    synchronizeEvent(from);
    synchronizeEvent(to);
    return (EventAt(to).reached->time_us - EventAt(from).reached->time_us) *
           1e-3;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Simulation::Get().Query(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Simulation::Get().Synchronize(stream, "a stream");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (const c10::Stream stream : Simulation::Get().StreamsOn(device)) {
      Simulation::Get().Synchronize(stream, "a device");
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override {
    TheDeviceAllocator().recordStream(data, stream);
  }

 private:
  static Simulation::Event& EventAt(void* event) {
    return *static_cast<Simulation::Event*>(event);
  }
};

// --- Hooks -----------------------------------------------------------------

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(options().num_devices);
  }
  int getNumGPUs() const override { return deviceCount(); }
  c10::DeviceIndex current_device() const override { return CurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    SetCurrentDevice(device);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex old = CurrentDevice();
    SetCurrentDevice(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override {
    return Simulation::Get().IsPinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &ThePinnedAllocator();
  }
  at::Allocator* getCUDADeviceAllocator() const override {
    return &TheDeviceAllocator();
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override {
    return {kType, CurrentDevice()};
  }
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    return DefaultGenerator(device < 0 ? CurrentDevice() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? 0 : device);
  }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(device);
  }
};

// Prints the findings when the process ends.
void PrintReport() {
  for (const auto& [reason, count] : TakeHostWaits()) {
    std::fprintf(stderr, "[sim] the host waited for %s: %lld times\n",
                 reason.c_str(), static_cast<long long>(count));
  }
  const MemoryStats memory = memory_stats();
  std::fprintf(stderr, "[sim] memory of device 0: at most %lld bytes\n",
               static_cast<long long>(memory.peak));
  std::fprintf(stderr, "[sim] races: %zu\n", TakeRaces().size());
  if (options().clock) {
    std::fprintf(stderr, "[sim] clock: %s\n",
                 Simulation::Get().DescribeTime(CurrentDevice()).c_str());
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  if (!options().enabled) return false;
  c10::impl::DeviceGuardImplRegistrar(kType, new DeviceGuard);
  c10::SetAllocator(kType, &TheDeviceAllocator());
  at::setHostAllocator(kType, &ThePinnedAllocator());
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](const at::CUDAHooksArgs& /*arguments*/) {
        return std::unique_ptr<at::CUDAHooksInterface>(new Hooks);
      });
  if (options().report) std::atexit(PrintReport);
  return true;
}();

}  // namespace
}  // namespace sim
