// SPDX-License-Identifier: Apache-2.0
// CheckDevice: the device that gpu_steps checks, "cuda" or, to try the steps
// without a GPU, "cpu", which has no streams and whose memory is not counted.
// For the thread that trains.
#ifndef TESTS_FSDP_GPU_CHECK_DEVICE_H_
#define TESTS_FSDP_GPU_CHECK_DEVICE_H_

#include <cstdint>
#include <string>

#include "c10/core/Device.h"

namespace fsdp::testing {

class CheckDevice {
 public:
  // Throws c10::ValueError for another name, c10::Error for "cuda" where there
  // is no GPU.
  explicit CheckDevice(const std::string& name);

  // On a GPU the one that this process uses now: a process group chooses it.
  c10::Device device() const;
  // As init_device_mesh expects it.
  const std::string& name() const { return name_; }
  bool is_cuda() const { return name_ == "cuda"; }

  // Waits until the device has done what was asked of it.
  void Synchronize() const;
  // The most bytes of tensors on the device since ResetPeak; 0 on a CPU.
  int64_t PeakBytes() const;
  void ResetPeak() const;

 private:
  std::string name_;
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_CHECK_DEVICE_H_
