// OptimizerKind: what the state and the hyperparameters of one class of
// optimizers are called in PyTorch, and where this class keeps them. The only
// file that knows the classes. Pure tables; for the thread that trains.
#ifndef DCP_TORCH_OPTIMIZER_KIND_H_
#define DCP_TORCH_OPTIMIZER_KIND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/torch/state_value.h"
#include "torch/optim/optimizer.h"

namespace dcp {

using OptimizerOptions = torch::optim::OptimizerOptions;
using ParamState = torch::optim::OptimizerParamState;

// A hyperparameter under its name in PyTorch.
struct Hyperparameter {
  using Betas = std::tuple<double, double>;
  // This class has no such option: it behaves as with this value.
  struct Fixed {
    StateValue value;
  };
  // Decides nothing but speed: written, ignored when read.
  struct Ignored {
    StateValue value;
  };

  const char* key;
  std::variant<double& (*)(OptimizerOptions&), bool& (*)(OptimizerOptions&),
               Betas& (*)(OptimizerOptions&), Fixed, Ignored>
      access;
};

// A tensor of a parameter's state, of the parameter's shape.
struct StateTensor {
  const char* key;
  at::Tensor& (*access)(ParamState&);
  // Whether there is one under these options; null: always.
  bool (*used)(OptimizerOptions&) = nullptr;
  // What it is before the first step; null: 0.
  double (*initial)(OptimizerOptions&) = nullptr;
};

struct OptimizerKind {
  std::vector<Hyperparameter> hyperparameters;
  std::vector<StateTensor> tensors;
  // "step" is a number, or a tensor of no dimensions, or there is none.
  int64_t& (*step_number)(ParamState&) = nullptr;
  at::Tensor& (*step_tensor)(ParamState&) = nullptr;
  std::unique_ptr<ParamState> (*make_state)() = nullptr;

  bool has_step() const { return step_number || step_tensor; }
  // The tensors that there are under these options.
  std::vector<const StateTensor*> TensorsUnder(OptimizerOptions& options) const;
  // Whether a parameter has any state under these options.
  bool HasState(OptimizerOptions& options) const;

  StateDict HyperparametersOf(OptimizerOptions& options) const;
  // Sets those in `values`; others stay. `problems` gets "lr is a text" and
  // the like, of every value that cannot be set.
  void SetHyperparameters(const StateDict& values, OptimizerOptions& options,
                          std::vector<std::string>& problems) const;

  // `state` (null: a new one) with all tensors that `options` want, those that
  // were missing as before a first step. Tensors that are there are aliased.
  std::unique_ptr<ParamState> CompleteState(const ParamState* state,
                                            const at::Tensor& parameter,
                                            OptimizerOptions& options) const;
};

// Unimplemented for an optimizer of another class.
absl::StatusOr<const OptimizerKind*> KindOf(
    const torch::optim::Optimizer& optimizer);

}  // namespace dcp

#endif  // DCP_TORCH_OPTIMIZER_KIND_H_
