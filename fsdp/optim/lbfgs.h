// SPDX-License-Identifier: Apache-2.0
// LBFGS over sharded parameters. torch::optim::LBFGS measures directions, step
// lengths and convergence by dot products and norms over all parameters, which
// on shards would differ between ranks: there it is refused. Here every rank
// runs that algorithm on whole copies of the parameters, and the model computes
// with shards as usual. Memory: 2 + 2 * history_size copies of the parameters
// on each rank, as LBFGS needs, so the model must be small enough. For the
// thread that trains.
//
//   fsdp::LBFGS optimizer(fsdp::parameters(*model),
//                         torch::optim::LBFGSOptions(1));
//   optimizer.step([&] {
//     optimizer.zero_grad();
//     auto loss = (model(x) - y).square().mean();
//     loss.backward();
//     return loss;
//   });
#ifndef FSDP_OPTIM_LBFGS_H_
#define FSDP_OPTIM_LBFGS_H_

#include <functional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/mesh/dtensor.h"
#include "torch/optim/lbfgs.h"

namespace fsdp {

class LBFGS {
 public:
  // All parameters must lie on one mesh (c10::ValueError).
  explicit LBFGS(std::vector<DTensor> parameters,
                 const torch::optim::LBFGSOptions& options = {});

  // As torch::optim::LBFGS::step, collective. `closure` zeroes the gradients,
  // computes this rank's loss and calls backward; it runs several times,
  // equally often on every rank. Minimises the ranks' average loss; returns
  // that average as it was at the beginning.
  at::Tensor step(const std::function<at::Tensor()>& closure);
  void zero_grad();

 private:
  at::Tensor Evaluate(const std::function<at::Tensor()>& closure);
  void WriteShards();
  at::Tensor AverageOverRanks(const at::Tensor& loss) const;

  std::vector<DTensor> parameters_;
  std::vector<at::Tensor> wholes_;  // whole parameters_, equal on every rank
  torch::optim::LBFGS optimizer_;   // steps wholes_
};

}  // namespace fsdp

#endif  // FSDP_OPTIM_LBFGS_H_
