// SPDX-License-Identifier: Apache-2.0
// Options and results for the calls in fsdp/checkpoint/state_dict.h.
#ifndef FSDP_CHECKPOINT_STATE_STATE_DICT_OPTIONS_H_
#define FSDP_CHECKPOINT_STATE_STATE_DICT_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/mesh/process_group.h"
#include "torch/nn/module.h"

namespace fsdp {

struct StateDictOptions {
  // Whole tensors instead of DTensors. get: gathers one tensor at a time. set:
  // every rank takes one part.
  bool full_state_dict = false;
  // get: copies on the CPU. With full_state_dict only rank 0 gets them, the
  // others an empty dict.
  bool cpu_offload = false;
  // get: leaves out parameters that do not require a gradient.
  bool ignore_frozen_params = false;
  // Models: if not empty, only entries in these modules, which are inside
  // `module` and owned by the caller. If keep_submodule_prefixes is false,
  // there is exactly one, and names are relative to it.
  std::vector<const torch::nn::Module*> submodules = {};
  bool keep_submodule_prefixes = true;
  // set: a missing or unexpected name is an error (NotFound or
  // InvalidArgument, all names listed).
  bool strict = true;
  // set, with full_state_dict: only rank 0's dict counts, others may be empty;
  // each rank receives only one part.
  bool broadcast_from_rank0 = false;
  // Optimizers: "state.<name>.<key>" and "param_groups.<name>.<key>" instead
  // of a nested dict.
  bool flatten_optimizer_state_dict = false;
  // Bounds the memory that broadcast_from_rank0 uses in addition to the shards,
  // on every rank.
  uint64_t window_bytes = uint64_t{64} << 20;
  // The ranks that make a collective call; null: the default group, or only
  // this process if there is none.
  ProcessGroup process_group = nullptr;
};

// The names that a call with strict = false did not match.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys;
  std::vector<std::string> unexpected_keys;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_STATE_DICT_OPTIONS_H_
