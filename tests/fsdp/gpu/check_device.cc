#include "tests/fsdp/gpu/check_device.h"

#include "ATen/DeviceAccelerator.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/util/Exception.h"

namespace fsdp::testing {
namespace {

// The statistics of all pools of the allocator together.
constexpr size_t kAll =
    static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

CheckDevice::CheckDevice(const std::string& name)
    : name_(name), device_(c10::DeviceType::CPU) {
  TORCH_CHECK_VALUE(name == "cpu" || name == "cuda", "the device is \"", name,
                    "\"; it must be cpu or cuda");
  if (name == "cpu") return;
  TORCH_CHECK(at::accelerator::deviceCount() > 0,
              "the device is cuda, but LibTorch finds no GPU");
  device_ = c10::Device(c10::DeviceType::CUDA, 0);
}

void CheckDevice::Synchronize() const {
  if (is_cuda()) at::accelerator::synchronizeDevice(device_.index());
}

int64_t CheckDevice::PeakBytes() const {
  if (!is_cuda()) return 0;
  return at::accelerator::getDeviceStats(device_.index())
      .allocated_bytes[kAll]
      .peak;
}

void CheckDevice::ResetPeak() const {
  if (is_cuda()) at::accelerator::resetPeakStats(device_.index());
}

}  // namespace fsdp::testing
