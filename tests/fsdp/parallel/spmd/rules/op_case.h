// SPDX-License-Identifier: Apache-2.0
// OpCase: an operator call on whole tensors. CheckOnRanks runs it with the
// arguments in parts, under every layout combination, and compares results and
// gradients with those on the whole.
#ifndef TESTS_FSDP_PARALLEL_SPMD_RULES_OP_CASE_H_
#define TESTS_FSDP_PARALLEL_SPMD_RULES_OP_CASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/parallel/spmd/layout.h"
#include "torch/types.h"

namespace fsdp::spmd {

using Tensors = std::vector<at::Tensor>;

// One argument.
struct Input {
  enum class Kind {
    kReal,      // float64, with both signs; a leaf that requires grad
    kPositive,  // the same, in [0.5, 1.5]
    kIndex,     // int64 in [0, bound)
    kMask,      // bool
  };
  Sizes sizes;
  Kind kind = Kind::kReal;
  int64_t bound = 0;
};
inline Input Positive(Sizes sizes) {
  return {std::move(sizes), Input::Kind::kPositive};
}
inline Input Index(Sizes sizes, int64_t bound) {
  return {std::move(sizes), Input::Kind::kIndex, bound};
}
inline Input Mask(Sizes sizes) {
  return {std::move(sizes), Input::Kind::kMask};
}

struct OpCase {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensors(const Tensors&)> op;
  // Arguments under layouts for which the operator may gather: "0:1" is
  // argument 0 cut along dimension 1, "0:pieces" an argument with several
  // pieces on a rank, "1:partial" a partial argument 1, "0:*" argument 0 in any
  // parts. Under all others it must not.
  std::vector<std::string> gathers = {};
};

// The same with one result.
template <typename Fn>
OpCase Case(std::string name, std::vector<Input> inputs, Fn op,
            std::vector<std::string> gathers = {}) {
  return {std::move(name), std::move(inputs),
          [op](const Tensors& x) { return Tensors{op(x)}; },
          std::move(gathers)};
}

// Checks every case on 1, 2 and 3 ranks.
void CheckOnRanks(const std::vector<OpCase>& cases);

}  // namespace fsdp::spmd

#endif  // TESTS_FSDP_PARALLEL_SPMD_RULES_OP_CASE_H_
