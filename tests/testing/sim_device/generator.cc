// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/generator.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "ATen/ops/empty.h"
#include "c10/util/Exception.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"

namespace sim {

Generator::Generator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kType, device),
                         c10::DispatchKeySet(c10::DispatchKey::CUDA)),
      seed_(c10::default_rng_seed_val) {}

uint64_t Generator::Draw() {
  return seed_ * 0x9e3779b97f4a7c15u + 4 * offset_++;
}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  std::array<uint64_t, 2> words{};
  TORCH_CHECK(
      static_cast<size_t>(state.numel()) * state.itemsize() == sizeof(words),
      "the state of a simulated device's generator has ", sizeof(words),
      " bytes");
  std::memcpy(words.data(), state.data(), sizeof(words));
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const std::array<uint64_t, 2> words{seed_, offset_};
  const at::Tensor state = at::empty({sizeof(words)}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), words.data(), sizeof(words));
  return state.getIntrusivePtr();
}

Generator* Generator::clone_impl() const {
  auto* const copy = new Generator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static auto* const all = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int64_t i = 0; i < options().num_devices; ++i) {
      made->push_back(
          at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i)));
    }
    return made;
  }();
  return all->at(static_cast<size_t>(device));
}

}  // namespace sim
