// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/parity/checkpoints.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "c10/util/Exception.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/checkpoint/state_dict.h"

namespace fsdp::testing {
namespace {

constexpr char kNote[] = "n\xc3\xb6te";

fsdp::StateDict MakeState(const torch::nn::Module& module,
                          torch::optim::Optimizer& optimizer,
                          const fsdp::StateDictOptions& options) {
  auto parts = fsdp::get_state_dict(module, optimizer, options);
  fsdp::ThrowIfError(parts.status());
  // Without cpu_offload all ranks have the same; with it only rank 0 has the
  // state.
  return {{"model", std::move(parts->first)},
          {"optim", std::move(parts->second)}};
}

}  // namespace

void SaveCheckpoint(const std::string& path, int64_t step,
                    const torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer,
                    const std::shared_ptr<Stateful>& average) {
  const bool full = absl::EndsWith(path, "-full");
  fsdp::StateDict state = MakeState(
      module, optimizer, {.full_state_dict = full, .cpu_offload = full});
  state["train"] = fsdp::StateDict{{"step", step}, {"note", kNote}};
  if (average != nullptr) state["average"] = average;
  fsdp::ThrowIfError(fsdp::save(state, path));
}

void LoadCheckpoint(const std::string& path, int64_t step,
                    torch::nn::Module& module,
                    torch::optim::Optimizer& optimizer,
                    const std::shared_ptr<Stateful>& average) {
  fsdp::StateDict state = MakeState(module, optimizer, {});
  state["train"] = fsdp::StateDict{{"step", 0}, {"note", ""}};
  if (average != nullptr) state["average"] = average;
  fsdp::ThrowIfError(absl::EndsWith(path, "-full")
                         ? fsdp::load_from_rank0(state, path)
                         : fsdp::load(state, path));
  fsdp::ThrowIfError(
      fsdp::set_state_dict(module, optimizer,
                           *state["model"].get_if<fsdp::StateDict>(),
                           *state["optim"].get_if<fsdp::StateDict>())
          .status());
  fsdp::StateDict& train = *state["train"].get_if<fsdp::StateDict>();
  TORCH_CHECK(*train["step"].get_if<int64_t>() == step,
              "the checkpoint is of another step");
  TORCH_CHECK(*train["note"].get_if<std::string>() == kNote,
              "the checkpoint has another note");
}

}  // namespace fsdp::testing
