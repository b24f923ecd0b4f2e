// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/check_device.h"

#include "ATen/DeviceAccelerator.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/util/Exception.h"

namespace fsdp::testing {
namespace {

// Statistics for all the allocator's pools together.
constexpr size_t kAll =
    static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

CheckDevice::CheckDevice(const std::string& name) : name_(name) {
  TORCH_CHECK_VALUE(name == "cpu" || name == "cuda", "the device is \"", name,
                    "\"; it must be cpu or cuda");
  TORCH_CHECK(!is_cuda() || at::accelerator::deviceCount() > 0,
              "the device is cuda, but LibTorch finds no GPU");
}

c10::Device CheckDevice::device() const {
  if (!is_cuda()) return c10::DeviceType::CPU;
  return {c10::DeviceType::CUDA, at::accelerator::getDeviceIndex()};
}

void CheckDevice::Synchronize() const {
  if (is_cuda()) at::accelerator::synchronizeDevice(device().index());
}

int64_t CheckDevice::PeakBytes() const {
  if (!is_cuda()) return 0;
  return at::accelerator::getDeviceStats(device().index())
      .allocated_bytes[kAll]
      .peak;
}

void CheckDevice::ResetPeak() const {
  if (is_cuda()) at::accelerator::resetPeakStats(device().index());
}

}  // namespace fsdp::testing
