// SPDX-License-Identifier: Apache-2.0
// Rounding to bfloat16 up or down at random, so that the mean of many roundings
// is the number itself: sums in bfloat16 do not lose small terms. For the
// thread that trains; no communication.
#ifndef FSDP_OPTIM_STOCHASTIC_ROUNDING_H_
#define FSDP_OPTIM_STOCHASTIC_ROUNDING_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace fsdp::optim {

// `values` are float32. A number between two of bfloat16 becomes the one that
// is farther from zero with the probability of its distance from the nearer one
// to zero, in steps of 2^-16 of their distance. Numbers of bfloat16 stay. The
// random numbers depend on `seed`, the shape and the device alone, so that
// replicas with the same seed round alike.
at::Tensor RoundStochastically(const at::Tensor& values, uint64_t seed);

}  // namespace fsdp::optim

#endif  // FSDP_OPTIM_STOCHASTIC_ROUNDING_H_
