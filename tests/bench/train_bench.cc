// One rank of a training run with fsdp, measured; torch_train.py is its twin
// and train_bench.py runs both, with the environment of a rank.
//
//   train_bench train SPEC.json OUT     writes OUT.<rank>.json
//   train_bench operators               prints JSON: microseconds of an
//                                       operator, plain and on a managed
//                                       parameter that is gathered

#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/ones.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/report.h"
#include "nlohmann/json.hpp"
#include "tests/bench/process_memory.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adamw.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.is_open(), "cannot read '", path, "'");
  return std::string((std::istreambuf_iterator<char>(file)),
                     std::istreambuf_iterator<char>());
}

// Processor time of this process (all threads) or of this thread, by the clock.
double CpuSeconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

llama::ModelOptions Sizes(const Json& sizes) {
  return {.vocab_size = sizes["vocab_size"],
          .dim = sizes["dim"],
          .num_layers = sizes["num_layers"],
          .num_heads = sizes["num_heads"],
          .num_kv_heads = sizes["num_kv_heads"],
          .ffn_dim = sizes["ffn_dim"]};
}

llama::Llama MakeModel(const Json& spec) {
  llama::Llama model(Sizes(spec["sizes"]));
  {
    const c10::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      std::string bytes =
          ReadFile(spec["init"].get<std::string>() + "/" + item.key() + ".bin");
      item.value().copy_(
          at::from_blob(bytes.data(), item.value().sizes(), at::kFloat));
    }
  }
  if (!spec["sharded"]) return model;
  const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()});
  for (const std::shared_ptr<torch::nn::Module>& layer : *model->layers) {
    fully_shard(layer, {.mesh = mesh});
  }
  fully_shard(model, {.mesh = mesh});
  return model;
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    const Json& spec, const llama::Llama& model) {
  const double lr = spec["lr"];
  if (spec["fused"]) {
    return std::make_unique<FusedAdamW>(model->parameters(),
                                        FusedAdamWOptions(lr));
  }
  return std::make_unique<torch::optim::AdamW>(model->parameters(),
                                               torch::optim::AdamWOptions(lr));
}

at::Tensor ForwardBackward(llama::Llama& model, const at::Tensor& batch) {
  const at::Tensor rows = batch.chunk(get_world_size())[get_rank()];
  const int64_t length = rows.size(1) - 1;
  const at::Tensor logits = model(rows.narrow(1, 0, length));
  const at::Tensor loss = at::cross_entropy_loss(
      logits.flatten(0, 1), rows.narrow(1, 1, length).flatten());
  loss.backward();
  return loss.detach();
}

Json TrainAndMeasure(const Json& spec) {
  const int64_t before = dcp::PrivateBytes();
  llama::Llama model = MakeModel(spec);
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      MakeOptimizer(spec, model);
  std::string tokens = ReadFile(spec["data"]);
  const at::Tensor data = at::from_blob(
      tokens.data(), {spec["steps"], spec["batch"], spec["length"]}, at::kLong);

  Json result = {{"private_before_bytes", before}};
  for (int64_t step = 0; step < spec["steps"]; ++step) {
    if (spec["sharded"]) reset_step_report(*model);
    const double cpu_begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    const Clock::time_point begin = Clock::now();
    optimizer->zero_grad();
    const at::Tensor loss = ForwardBackward(model, data[step]);
    const Clock::time_point middle = Clock::now();
    optimizer->step();
    const Clock::time_point end = Clock::now();
    result["seconds"].push_back(SecondsBetween(begin, end));
    result["cpu_seconds"].push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) -
                                    cpu_begin);
    result["optimizer_seconds"].push_back(SecondsBetween(middle, end));
    result["losses"].push_back(loss.item<double>());
  }
  result["private_peak_bytes"] = dcp::PeakPrivateBytes();
  int64_t shard_bytes = 0;
  for (const at::Tensor& shard : model->parameters()) {
    shard_bytes += static_cast<int64_t>(shard.nbytes());
  }
  result["shard_bytes"] = shard_bytes;
  if (spec["sharded"]) {
    const StepReport report = step_report(*model);
    result["collectives"] = {{"all_gather", report.num_all_gathers},
                             {"reduce_scatter", report.num_reduce_scatters},
                             {"all_reduce", report.num_all_reduces}};
    result["unsharded_peak_bytes"] = report.unsharded_bytes_peak;
  }
  return result;
}

// The time of one call of a linear, in microseconds of processor time, which
// other processes affect less than wall time.
double MicrosPerCall(torch::nn::Linear& linear, const at::Tensor& input) {
  constexpr int kCalls = 2000;
  const double begin = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < kCalls; ++i) linear(input);
  return (CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e6 / kCalls;
}

// Rounds alternate, so that a change in the machine's speed meets both.
Json MeasureOperators() {
  constexpr int kRounds = 201;
  constexpr int64_t kDim = 32;
  const c10::NoGradGuard no_grad;
  torch::nn::Linear plain(kDim, kDim);
  torch::nn::Linear managed(kDim, kDim);
  fully_shard(managed, {.reshard_after_forward = false});
  const at::Tensor input = at::ones({1, kDim});
  managed(input);
  std::vector<double> plain_us;
  std::vector<double> managed_us;
  std::vector<double> overhead_us;
  for (int i = 0; i < kRounds; ++i) {
    plain_us.push_back(MicrosPerCall(plain, input));
    managed_us.push_back(MicrosPerCall(managed, input));
    overhead_us.push_back(managed_us.back() - plain_us.back());
  }
  return {{"plain_us", plain_us},
          {"managed_us", managed_us},
          {"overhead_us", overhead_us}};
}

int Main(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  init_process_group();
  if (arguments == std::vector<std::string>{"operators"}) {
    std::cout << MeasureOperators() << "\n";
  } else {
    TORCH_CHECK(arguments.size() == 3 && arguments[0] == "train",
                "usage: train_bench train SPEC.json OUT | operators");
    const Json result = TrainAndMeasure(Json::parse(ReadFile(arguments[1])));
    std::ofstream(arguments[2] + "." + std::to_string(get_rank()) + ".json")
        << result;
  }
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::Main(std::vector<std::string>(argv + 1, argv + argc));
}
