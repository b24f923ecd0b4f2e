// SPDX-License-Identifier: Apache-2.0
// OptimizerKind: one optimizer class's names in PyTorch for state and
// hyperparameters, and where the class keeps them. The only file that knows the
// classes. Pure tables; for the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_OPTIMIZER_KIND_H_
#define FSDP_CHECKPOINT_STATE_OPTIMIZER_KIND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

using OptimizerOptions = torch::optim::OptimizerOptions;
using ParamState = torch::optim::OptimizerParamState;

// A hyperparameter under its name in PyTorch.
struct Hyperparameter {
  using Betas = std::tuple<double, double>;
  using Coefficients = std::tuple<double, double, double>;
  // One of several words; absent: None.
  using Word = std::optional<std::string>;
  // The class does not have the option: it behaves as if it had this value.
  struct Fixed {
    StateValue value;
  };
  // Affects only speed: written, ignored when read.
  struct Ignored {
    StateValue value;
  };

  const char* key;
  std::variant<double& (*)(OptimizerOptions&), bool& (*)(OptimizerOptions&),
               int64_t& (*)(OptimizerOptions&), Betas& (*)(OptimizerOptions&),
               Coefficients& (*)(OptimizerOptions&),
               Word& (*)(OptimizerOptions&), Fixed, Ignored>
      access;
};

// A tensor in a parameter's state.
struct StateTensor {
  enum class Layout : uint8_t {
    kParameter,  // the parameter's shape and shards
    kRows,       // [the parameter's rows, n], in shards with the same rows
    kWhole,      // the same on every rank
  };

  const char* key;
  at::Tensor& (*access)(ParamState&);
  // Whether it exists under these options; null: always.
  bool (*used)(OptimizerOptions&) = nullptr;
  // The value before the first step; null: 0.
  double (*initial)(OptimizerOptions&) = nullptr;
  Layout layout = Layout::kParameter;
  // Another optimizer's key for the same numbers, if they are not codes.
  const char* other_key = nullptr;
};

struct OptimizerKind {
  std::vector<Hyperparameter> hyperparameters;
  std::vector<StateTensor> tensors;
  // "step" is a number, or a tensor without dimensions, or does not exist.
  int64_t& (*step_number)(ParamState&) = nullptr;
  at::Tensor& (*step_tensor)(ParamState&) = nullptr;
  // Makes the tensors that a state lacks, where parameters of one kind may have
  // different ones; null: all have those of TensorsUnder.
  void (*complete)(ParamState&, OptimizerOptions&,
                   const at::Tensor& parameter) = nullptr;
  // A copy of the state, or a new one for null.
  std::unique_ptr<ParamState> (*make_state)(const ParamState*) = nullptr;

  bool has_step() const { return step_number || step_tensor; }
  // The tensors that exist under these options.
  std::vector<const StateTensor*> TensorsUnder(OptimizerOptions& options) const;
  // Whether a parameter has any state under these options.
  bool HasState(OptimizerOptions& options) const;

  StateDict GetHyperparameters(OptimizerOptions& options) const;
  // Sets those in `values`; others stay. For every value that cannot be set,
  // adds a problem such as "lr is a text".
  void SetHyperparameters(const StateDict& values, OptimizerOptions& options,
                          std::vector<std::string>& problems) const;

  // `state` (null: a new one) with all tensors that `options` require. Tensors
  // that exist are aliased; missing ones are as before the first step.
  std::unique_ptr<ParamState> CompleteState(const ParamState* state,
                                            const at::Tensor& parameter,
                                            OptimizerOptions& options) const;
  // Whether `state`, which may be null, came from CompleteState and has all
  // tensors that `options` require.
  bool IsComplete(ParamState* state, OptimizerOptions& options) const;
};

// By group: MuonWithAdamW has groups of two kinds. Unimplemented for an
// optimizer of another class.
absl::StatusOr<std::vector<const OptimizerKind*>> FindOptimizerKinds(
    const torch::optim::Optimizer& optimizer);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_OPTIMIZER_KIND_H_
