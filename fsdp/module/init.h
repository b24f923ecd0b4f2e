// SPDX-License-Identifier: Apache-2.0
// Parameter initialisation that does not depend on sharding: every element's
// value follows from the seed and the element's place in the whole tensor. So
// each rank makes the values for the part that it holds, without communication,
// and one process, four ranks, HSDP or another sharded dimension all give the
// same model. The functions are those in torch.nn.init; their random numbers
// are not torch's. For the thread that trains.
//
//   fsdp::fully_shard(model, options);  // built under fsdp::MetaDeviceGuard
//   fsdp::to_empty(model, device);
//   fsdp::init::default_(*model, /*seed=*/1234);  // see init_defaults.h
#ifndef FSDP_MODULE_INIT_H_
#define FSDP_MODULE_INIT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "dcp/tensor/box.h"
#include "fsdp/mesh/dtensor.h"
#include "torch/nn/module.h"

namespace fsdp::init {

// The tensor to initialise: a parameter as modules and optimizers hold it,
// sharded or not, or a DTensor. Fans and values are the whole tensor's.
class Target {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): init::ones_(linear->weight)
  Target(const at::Tensor& tensor);
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  Target(const DTensor& tensor);

  // The whole tensor's shape, in elements.
  const std::vector<int64_t>& shape() const { return shape_; }
  // This rank's part, and its boxes in the whole tensor, in order.
  const at::Tensor& local() const { return local_; }
  const std::vector<dcp::Box>& boxes() const { return boxes_; }

 private:
  at::Tensor local_;
  std::vector<int64_t> shape_;
  std::vector<dcp::Box> boxes_;
};

// Writes the whole tensor's elements `first`, `first + 1`, ... in row-major
// order; called from several threads, for parts in any order.
using FillFn = std::function<void(int64_t first, double* values, int64_t size)>;
// Sets every element in this rank's part, rounded to the part's dtype, and
// frees the gathered parameter. All functions below do this. They throw
// c10::ValueError for a parameter that is undefined or on the meta device, and
// for invalid numbers.
void fill_(const Target& target, const FillFn& fill);

// The values that normal_ writes, for a fill_ that changes some of them.
FillFn normal_values(double mean, double std, uint64_t seed);

void constant_(const Target& target, double value);
void zeros_(const Target& target);
void ones_(const Target& target);
// In [low, high), before rounding.
void uniform_(const Target& target, double low, double high, uint64_t seed);
void normal_(const Target& target, double mean, double std, uint64_t seed);
// Normal, as if drawn again until the value is in [low, high].
void trunc_normal_(const Target& target, double mean, double std, double low,
                   double high, uint64_t seed);

struct Fans {
  int64_t fan_in;  // for a Linear: in_features
  int64_t fan_out;
};
// Throws c10::ValueError for fewer than 2 dimensions.
Fans fans_of(const Target& target);

// `gain` is the result of torch::nn::init::calculate_gain; Linear and
// convolutions use sqrt(1/3).
void kaiming_uniform_(const Target& target, double gain, uint64_t seed);
void kaiming_normal_(const Target& target, double gain, uint64_t seed);
void xavier_uniform_(const Target& target, double gain, uint64_t seed);
void xavier_normal_(const Target& target, double gain, uint64_t seed);

// The seed for parameter `name` in a model with seed `seed`: parameters must
// not share random numbers.
uint64_t seed_of(uint64_t seed, const std::string& name);

// Calls `fn` on every parameter of `module`, with the parameter's own seed;
// tied ones once, under their first name.
void init_parameters(
    torch::nn::Module& module,
    const std::function<void(const std::string& name, const Target& parameter,
                             uint64_t seed)>& fn,
    uint64_t seed);

}  // namespace fsdp::init

#endif  // FSDP_MODULE_INIT_H_
