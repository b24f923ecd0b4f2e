// SPDX-License-Identifier: Apache-2.0
// BypassHandler: lets the engine run operators on members of parallel
// parameters.
#ifndef FSDP_PARALLEL_SPMD_BYPASS_H_
#define FSDP_PARALLEL_SPMD_BYPASS_H_

namespace fsdp::spmd {

// While it lives, this thread's operators go to the engine as if nothing were
// parallel.
class BypassHandler {
 public:
  BypassHandler();
  ~BypassHandler();
  BypassHandler(const BypassHandler&) = delete;
  BypassHandler& operator=(const BypassHandler&) = delete;

  static bool active();
};

}  // namespace fsdp::spmd

#endif  // FSDP_PARALLEL_SPMD_BYPASS_H_
