// SPDX-License-Identifier: Apache-2.0
// A parameter group's policies: precision, where shards lie, whether parameters
// are freed after forward, and functions that replace collectives. Plain
// values; the rules are PyTorch's
// (torch/distributed/fsdp/_fully_shard/_fsdp_api.py).
#ifndef FSDP_ENGINE_POLICIES_H_
#define FSDP_ENGINE_POLICIES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace fsdp {

// Low precision for each parameter group, not for each operator as in autocast.
// Shards, and with them the optimizer, stay in the original dtype. The rules
// are PyTorch 2.15's.
struct MixedPrecisionPolicy {
  // Parameters are gathered, and computed with, in this dtype.
  std::optional<c10::ScalarType> param_dtype = {};
  // Gradients are reduced in this dtype, and accumulate in it while they are
  // not reduced. Unset: in the parameter's grad_dtype, which, if the program
  // has not set it either, is the shard's dtype, whatever param_dtype is.
  std::optional<c10::ScalarType> reduce_dtype = {};
  // The module's floating outputs are cast to this. Outputs are seen only where
  // the module is called through fsdp::forward or fsdp::Wrapped; setting it on
  // a module that is called in another way is an error.
  std::optional<c10::ScalarType> output_dtype = {};
  // With param_dtype: floating activations are cast to it as they meet the
  // parameters.
  bool cast_forward_inputs = true;
  // The dtype of a single parameter in place of param_dtype: nothing or
  // param_dtype for that, or the parameter's own dtype, to keep it, as for a
  // norm or a router. fully_shard asks once for each parameter that it takes;
  // `name` is below its module. Every rank must give the same answers. An
  // activation is not cast as it meets a parameter that keeps the own one.
  std::function<std::optional<c10::ScalarType>(const std::string& name,
                                               const at::Tensor& parameter)>
      param_dtype_override_fn = {};
};

// Shards, their gradients and the optimizer's state are in CPU memory; each
// gather copies to the device.
struct CPUOffloadPolicy {
  // Pinned memory makes those copies asynchronous; it needs an accelerator.
  bool pin_memory = true;

  friend bool operator==(const CPUOffloadPolicy&,
                         const CPUOffloadPolicy&) = default;
};

// Unset: free after forward, except the root's own parameters, which backward
// needs at once. true: free all. false: keep all until backward. An int n,
// which must divide the shard count: reshard to groups of n ranks, so that
// backward gathers only from those n.
class ReshardAfterForward {
 public:
  ReshardAfterForward() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): .reshard_after_forward = true
  ReshardAfterForward(bool reshard) : value_(reshard) {}
  // NOLINTNEXTLINE(google-explicit-constructor): .reshard_after_forward = 2
  ReshardAfterForward(int num_ranks) : value_(int64_t{num_ranks}) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  ReshardAfterForward(int64_t num_ranks) : value_(num_ranks) {}

  bool is_set() const { return value_.index() != 0; }
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const int64_t* as_num_ranks() const { return std::get_if<int64_t>(&value_); }

 private:
  std::variant<std::monostate, bool, int64_t> value_;
};

// Called instead of a group's all-gather, also if the group has one rank: fills
// `output` (ranks times `input`) from every rank's `input`, on the current
// stream.
using CustomAllGather = std::function<void(at::Tensor output, at::Tensor input,
                                           c10d::ProcessGroup& group)>;
// Called instead of the reduce-scatter, also with one rank: sets `output` to
// this rank's part of the reduced `input`.
using CustomReduceScatter = std::function<void(
    at::Tensor output, at::Tensor input, c10d::ProcessGroup& group)>;

}  // namespace fsdp

#endif  // FSDP_ENGINE_POLICIES_H_
