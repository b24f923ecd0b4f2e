// SPDX-License-Identifier: Apache-2.0
// AveragesScope: a model computes with an AveragedModel's weights while it
// lives, to evaluate or export them:
//
//   {
//     const fsdp::optim::AveragesScope averages(*average, *model);
//     const torch::NoGradGuard no_grad;
//     loss = evaluate(model);
//   }
//
// It exchanges the values of this rank's shards and buffers with the averages,
// in place, and exchanges them again when it ends, by an exception too. The
// next forward computes with the new values on either side. What the scope's
// forwards change, such as a BatchNorm's statistics, belongs to the averages.
// No communication. For the thread that trains, between steps; every rank opens
// and ends it at the same place.
#ifndef FSDP_AVERAGING_AVERAGES_SCOPE_H_
#define FSDP_AVERAGING_AVERAGES_SCOPE_H_

#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/averaging/averaged_model.h"
#include "torch/nn/module.h"

namespace fsdp::optim {

class [[nodiscard]] AveragesScope {
 public:
  // `average` must outlive this. Before anything changes, throws
  // c10::ValueError for another model than the average's, and c10::Error
  // within another scope of the same average. Takes memory for the largest
  // tensor's part, which it keeps.
  AveragesScope(AveragedModel& average, const torch::nn::Module& model);
  ~AveragesScope();
  AveragesScope(const AveragesScope&) = delete;
  AveragesScope& operator=(const AveragesScope&) = delete;

 private:
  struct Pair {
    at::Tensor model;
    at::Tensor average;
    at::Tensor room;  // with the average's sizes; pairs share it
  };

  void Exchange();

  AveragedModel& average_;
  std::vector<Pair> pairs_;
};

}  // namespace fsdp::optim

#endif  // FSDP_AVERAGING_AVERAGES_SCOPE_H_
