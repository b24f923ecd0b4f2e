// SPDX-License-Identifier: Apache-2.0
// CheckDevice: the device that gpu_steps checks: "cuda" or, to try the steps
// without a GPU, "cpu". The CPU has no streams, and memory there is not
// counted. For the thread that trains.
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

  // On a GPU: the device that this process uses now, which a process group
  // chooses.
  c10::Device device() const;
  // As init_device_mesh expects it.
  const std::string& name() const { return name_; }
  bool is_cuda() const { return name_ == "cuda"; }

  // Waits until the device has done all issued work.
  void Synchronize() const;
  // The peak of tensor bytes on the device since ResetPeak; 0 on a CPU.
  int64_t PeakBytes() const;
  void ResetPeak() const;

 private:
  std::string name_;
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_GPU_CHECK_DEVICE_H_
