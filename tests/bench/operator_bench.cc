// SPDX-License-Identifier: Apache-2.0
// Measures an operator's cost on the host. Prints JSON: for each case, rounds
// in microseconds of processor time, plain and under fsdp, and their
// difference; torch_operators.py measures PyTorch's DTensor likewise.
//
//   operator_bench

#include <cstdint>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/add.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "c10/core/GradMode.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "nlohmann/json.hpp"
#include "torch/nn/modules/linear.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;
using Operator = std::function<void()>;

constexpr int kRounds = 101;
constexpr int kCalls = 2000;
constexpr int64_t kDim = 32;

// This thread's processor time, which other processes affect less than wall
// time.
double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double MicrosPerCall(const Operator& call) {
  const double begin = CpuSeconds();
  for (int i = 0; i < kCalls; ++i) call();
  return (CpuSeconds() - begin) * 1e6 / kCalls;
}

// Rounds alternate, so that a change in the machine's speed meets both.
Json Compare(const Operator& plain, const Operator& ours) {
  std::vector<double> plain_us;
  std::vector<double> ours_us;
  std::vector<double> overhead_us;
  plain();
  ours();
  for (int i = 0; i < kRounds; ++i) {
    plain_us.push_back(MicrosPerCall(plain));
    ours_us.push_back(MicrosPerCall(ours));
    overhead_us.push_back(ours_us.back() - plain_us.back());
  }
  return {{"plain_us", plain_us},
          {"ours_us", ours_us},
          {"overhead_us", overhead_us}};
}

// A Linear: a transposition and a product with two managed tensors.
Json MeasureManaged() {
  torch::nn::Linear plain(kDim, kDim);
  torch::nn::Linear managed(kDim, kDim);
  fully_shard(managed, {.reshard_after_forward = false});
  const at::Tensor input = at::ones({1, kDim});
  return Compare([&] { plain(input); }, [&] { managed(input); });
}

// Operators on activations in parts on an axis with one rank, which makes no
// collectives.
void MeasureParallel(Json& cases) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1}, {"tp"});
  const at::Tensor plain = at::ones({4, kDim, kDim});
  const at::Tensor other = at::ones({4, kDim, kDim});
  const at::Tensor cut = from_local(plain, mesh, {Shard(2)});
  const at::Tensor other_cut = from_local(other, mesh, {Shard(2)});
  const std::vector<int64_t> flat{4 * kDim, kDim};
  cases["relu"] = Compare([&] { at::relu(plain); }, [&] { at::relu(cut); });
  cases["add"] =
      Compare([&] { at::add(plain, other); }, [&] { at::add(cut, other_cut); });
  cases["multiply by a number"] =
      Compare([&] { plain.mul(2); }, [&] { cut.mul(2); });
  cases["view"] = Compare([&] { plain.view(flat); }, [&] { cut.view(flat); });
  cases["transpose"] =
      Compare([&] { plain.transpose(0, 1); }, [&] { cut.transpose(0, 1); });

  torch::nn::Linear linear(kDim, kDim);
  torch::nn::Linear colwise(kDim, kDim);
  parallelize_module(*colwise, mesh, {{"", ColwiseParallel()}});
  const at::Tensor input = at::ones({1, kDim});
  cases["parallel linear"] =
      Compare([&] { linear(input); }, [&] { colwise(input); });
}

int Main() {
  at::set_num_threads(1);
  init_process_group();
  Json cases;
  {
    const c10::NoGradGuard no_grad;
    // First, while nothing is parallel.
    cases["managed linear"] = MeasureManaged();
    MeasureParallel(cases);
    cases["managed linear, after a plan"] = MeasureManaged();
  }
  std::cout << cases << "\n";
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp

int main() { return fsdp::Main(); }
