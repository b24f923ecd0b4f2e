// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/rng_state.h"

#include <mutex>
#include <utility>

#include "ATen/Context.h"
#include "ATen/core/Generator.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "fsdp/checkpoint/state/torch_status.h"

namespace fsdp {
namespace {

constexpr char kCpu[] = "cpu";
constexpr char kCuda[] = "cuda";

bool HasCuda() { return at::globalContext().hasCUDA(); }

at::Generator FindGenerator(c10::DeviceType type) {
  return at::globalContext().defaultGenerator(c10::Device(type));
}

at::Tensor GeneratorState(c10::DeviceType type) {
  at::Generator generator = FindGenerator(type);
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

absl::Status SetState(absl::string_view key, c10::DeviceType type,
                      const StateValue& value) {
  const auto* tensor = value.get_if<at::Tensor>();
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "random state ", key, " is ", KindName(value), ", not a tensor"));
  }
  return dcp::Annotate(
      CatchTorch([&] {
        at::Generator generator = FindGenerator(type);
        const std::scoped_lock lock(generator.mutex());
        generator.set_state(tensor->detach().cpu().contiguous());
      }),
      "random state ", key);
}

}  // namespace

absl::StatusOr<StateDict> get_rng_state() {
  return CatchTorch([] {
    StateDict state = {{kCpu, GeneratorState(c10::kCPU)}};
    if (HasCuda()) state[kCuda] = GeneratorState(c10::kCUDA);
    return state;
  });
}

absl::Status set_rng_state(const StateDict& state) {
  const StateValue* cpu = state.find(kCpu);
  if (cpu == nullptr) {
    return absl::InvalidArgumentError("random state cpu is missing");
  }
  DCP_RETURN_IF_ERROR(SetState(kCpu, c10::kCPU, *cpu));
  const StateValue* cuda = state.find(kCuda);
  if (cuda == nullptr || !HasCuda()) return absl::OkStatus();
  return SetState(kCuda, c10::kCUDA, *cuda);
}

}  // namespace fsdp
