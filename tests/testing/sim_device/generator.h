// SPDX-License-Identifier: Apache-2.0
// Generator: a simulated device's random numbers. A kernel that draws gets a
// separate generator, seeded when the kernel is issued, so that the numbers do
// not depend on when it runs. For the thread that issues work.
#ifndef TESTS_TESTING_SIM_DEVICE_GENERATOR_H_
#define TESTS_TESTING_SIM_DEVICE_GENERATOR_H_

#include <cstdint>

#include "ATen/core/Generator.h"
#include "c10/core/GeneratorImpl.h"

namespace sim {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  // A seed for one kernel.
  uint64_t Draw();

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  // 16 bytes, as CUDA's: the seed and the offset.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  Generator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The generator that operators use by default.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_GENERATOR_H_
