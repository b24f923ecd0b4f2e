// SPDX-License-Identifier: Apache-2.0
// Saves, resumes and exports a run.
//
// Tested by tests/fsdp/examples/resume_test.py.
#include "fsdp/examples/train_llama/checkpoints.h"

#include <optional>
#include <utility>
#include <vector>

#include "ATen/ops/zeros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"

namespace llama {
namespace {

// The average's name in a checkpoint.
constexpr char kAverage[] = "average";

// The flags that must not change when a run is resumed: those on which shapes
// depend, and those that decide which sequences make up a step. The rank count,
// the optimizer's numbers and dtypes may change.
fsdp::StateDict LastingOptions(const Run& run) {
  const Config& config = run.config;
  fsdp::StateDict options = {
      {"seed", config.seed},
      {"batch", config.batch},
      {"accumulate", config.accumulate},
      {"seq-len", config.seq_len},
      {"dim", config.model.dim},
      {"layers", config.model.num_layers},
      {"heads", config.model.num_heads},
      {"kv-heads", config.model.num_kv_heads},
      {"ffn-dim", config.model.ffn_dim},
      {"tied-embeddings", int64_t{config.model.tied_embeddings}},
      {"data-bytes", run.data_bytes}};
  if (config.model.num_experts > 0) {
    options["experts"] = config.model.num_experts;
    options["top-k"] = config.model.top_k;
  }
  return options;
}

int64_t IntegerAt(const fsdp::StateDict& dict, const std::string& key) {
  const fsdp::StateValue* value = dict.find(key);
  const auto* integer = value == nullptr ? nullptr : value->get_if<int64_t>();
  return integer == nullptr ? -1 : *integer;
}

fsdp::StateDict& DictAt(fsdp::StateDict& dict, const std::string& key) {
  return *dict.find(key)->get_if<fsdp::StateDict>();
}

// Removes an optimizer's numbers from the state, and returns them.
fsdp::StateDict TakeGroups(fsdp::StateDict& optimizer) {
  fsdp::StateDict groups;
  for (const auto& [key, value] : optimizer) {
    if (absl::StartsWith(key, "param_groups")) groups[key] = value;
  }
  for (const auto& [key, value] : groups) optimizer.erase(key);
  return groups;
}

}  // namespace

Checkpoints::Checkpoints(const Run& run)
    : run_(run), manager_(run.training.checkpoints.get()) {}

// Tensors are the run's own, not copies. A step's data depends on its number,
// so the step is also the position in the data and in the learning rate
// schedule. Training draws no random numbers; a model with dropout would add
// fsdp::get_rng_state() here.
absl::StatusOr<fsdp::StateDict> Checkpoints::State() {
  absl::StatusOr<fsdp::StateDict> model =
      fsdp::get_model_state_dict(*run_.model);
  if (!model.ok()) return model.status();
  // Pipeline stages have different parameters in their groups. Numbers are then
  // stored under the parameter names.
  absl::StatusOr<fsdp::StateDict> optimizer = fsdp::get_optimizer_state_dict(
      *run_.model, run_.optimizer,
      {.flatten_optimizer_state_dict =
           *run_.config.train.mesh.pipeline_parallel_degree > 1});
  if (!optimizer.ok()) return optimizer.status();
  fsdp::StateDict state = {
      {"model", *std::move(model)},
      {"optimizer", *std::move(optimizer)},
      {"train", fsdp::StateDict{{"step", run_.progress.num_steps()},
                                {"losses", run_.progress.Losses()},
                                {"options", LastingOptions(run_)}}}};
  if (run_.average != nullptr) state[kAverage] = run_.average;
  return state;
}

absl::Status Checkpoints::CheckSame(const std::string& path) const {
  const fsdp::StateDict here = LastingOptions(run_);
  fsdp::StateDict stored = {{"train", fsdp::StateDict{{"options", here}}}};
  const absl::Status loaded = fsdp::load(stored, path);
  if (!loaded.ok()) return loaded;
  const fsdp::StateDict& there = DictAt(DictAt(stored, "train"), "options");
  std::vector<std::string> differences;
  for (const auto& [key, value] : here) {
    const int64_t saved = IntegerAt(there, key);
    if (saved == IntegerAt(here, key)) continue;
    differences.push_back(
        absl::StrCat(key, " was ", saved, " and is ", IntegerAt(here, key)));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, " belongs to another run: ", absl::StrJoin(differences, ", "),
      "; continue with the values that it was saved with, or begin in another "
      "--checkpoint-dir"));
}

absl::Status Checkpoints::Resume(const std::string& path, int64_t step) {
  absl::Status status = CheckSame(path);
  if (!status.ok()) return status;
  absl::StatusOr<fsdp::StateDict> state = State();
  if (!state.ok()) return state.status();
  const at::Tensor losses = at::zeros(
      {step}, at::TensorOptions(run_.config.device).dtype(at::kDouble));
  DictAt(*state, "train")["losses"] = losses;
  // The learning rate and the optimizer's other numbers come from the flags,
  // not from the checkpoint.
  fsdp::StateDict& optimizer = DictAt(*state, "optimizer");
  const fsdp::StateDict groups = TakeGroups(optimizer);
  // Loads into the parameters themselves; the optimizer's state is copied.
  status = fsdp::load(*state, path);
  if (!status.ok()) return status;
  for (const auto& [key, value] : groups) optimizer[key] = value;
  status =
      fsdp::set_optimizer_state_dict(*run_.model, run_.optimizer, optimizer);
  if (!status.ok()) return status;
  run_.progress.ContinueAfter(losses);
  if (run_.training.learning_rate != nullptr) {
    run_.training.learning_rate->set_step(step);
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::Begin() {
  const std::string& begun = *run_.config.train.checkpoint.initial_load_path;
  const std::optional<int64_t> step = run_.training.latest_step;
  if (!step.has_value()) {
    if (!begun.empty()) Say(absl::StrCat("began with the weights of ", begun));
    return absl::OkStatus();
  }
  const std::string path = manager_->path_of(*step);
  const absl::Status resumed = Resume(path, *step);
  if (!resumed.ok()) return resumed;
  Say(absl::StrCat("resumed step ", *step, " from ", path,
                   begun.empty() ? "" : "; --init-from is not read"));
  num_steps_at_begin_ = *step;
  return absl::OkStatus();
}

absl::Status Checkpoints::BeforeOptimizerStep() {
  return manager_ != nullptr ? manager_->before_optimizer_step()
                             : absl::OkStatus();
}

absl::Status Checkpoints::AfterStep() {
  if (manager_ == nullptr) return absl::OkStatus();
  const int64_t step = run_.progress.num_steps();
  const absl::StatusOr<bool> is_due = manager_->should_save(step);
  if (!is_due.ok()) return is_due.status();
  if (!*is_due && step != run_.config.steps) return absl::OkStatus();
  const absl::StatusOr<fsdp::StateDict> state = State();
  if (!state.ok()) return state.status();
  return manager_->save(step, *state);
}

bool Checkpoints::should_stop() const {
  return manager_ != nullptr && manager_->should_exit();
}

absl::Status Checkpoints::Export(int64_t step) {
  absl::Status status = run_.training.finish(step);
  const std::string& whole = run_.training.full_model_path;
  if (!status.ok()) return status;
  if (!whole.empty()) Say(absl::StrCat("exported the model to ", whole));
  const std::string& file = run_.config.export_to;
  if (file.empty()) return absl::OkStatus();
  const bool is_average = run_.average != nullptr;
  status = fsdp::export_full(
      manager_->path_of(step), file,
      {.prefix = is_average ? absl::StrCat(kAverage, ".module") : "model"});
  if (status.ok()) {
    Say(absl::StrCat("exported the ", is_average ? "average" : "model", " to ",
                     file));
  }
  return status;
}

absl::Status Checkpoints::Finish() {
  if (manager_ == nullptr) return absl::OkStatus();
  const absl::Status status = manager_->finish();
  if (!status.ok()) return status;
  const int64_t step = run_.progress.num_steps();
  const std::string path = manager_->path_of(step);
  if (should_stop()) {
    Say(absl::StrCat("stopped by SIGTERM, ", path,
                     " is saved; the same command continues from there"));
    return absl::OkStatus();
  }
  Say(step > num_steps_at_begin_
          ? absl::StrCat("saved ", path)
          : absl::StrCat("no step is left to do of --steps=",
                         run_.config.steps));
  return Export(step);
}

}  // namespace llama
