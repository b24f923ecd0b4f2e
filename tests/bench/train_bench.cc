// SPDX-License-Identifier: Apache-2.0
// One rank in a training run with fsdp, measured; torch_train.py is its twin.
// train_bench.py and parallel_bench.py run both, with a rank's environment.
// train_bench_nccl is the same program with NCCL, for a GPU.
//
//   train_bench SPEC.json OUT     writes OUT.<rank>.json

#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/from_blob.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/examples/train_llama/model.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon_options.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "fsdp/report.h"
#include "nlohmann/json.hpp"
#include "tests/bench/process_memory.h"
#include "tests/fsdp/gpu/check_device.h"
#include "tests/fsdp/parity/parallel.h"
#include "tests/testing/counting_backend.h"
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

// Processor time for this process (all threads) or this thread, by the clock.
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

llama::Llama MakeModel(const Json& spec, const DeviceMesh& mesh) {
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
  model->to(mesh.device());
  if (spec["tp"] > 1) testing::Parallelize(*model, mesh["tp"], spec["plan"]);
  if (!spec["sharded"]) return model;
  for (const std::shared_ptr<torch::nn::Module>& layer : *model->layers) {
    fully_shard(layer, {.mesh = mesh["dp"]});
  }
  fully_shard(model, {.mesh = mesh["dp"]});
  return model;
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    const Json& spec, const llama::Llama& model) {
  const double lr = spec["lr"];
  if (spec["optimizer"] == "muon") {
    return std::make_unique<optim::MuonWithAdamW>(
        *model, std::vector<std::string>{"embed_tokens.*", "lm_head.*"},
        optim::MuonWithAdamWOptions{
            .muon = optim::MuonOptions(lr).adjust_lr_fn("match_rms_adamw"),
            .adamw = FusedAdamWOptions(lr)});
  }
  if (spec["optimizer"] == "fused_adamw") {
    return std::make_unique<FusedAdamW>(model->parameters(),
                                        FusedAdamWOptions(lr));
  }
  return std::make_unique<torch::optim::AdamW>(model->parameters(),
                                               torch::optim::AdamWOptions(lr));
}

// Ranks that cut one model have the same rows.
at::Tensor ForwardBackward(llama::Llama& model, const at::Tensor& batch,
                           const DeviceMesh& mesh) {
  const at::Tensor rows =
      batch.chunk(mesh["dp"].size())[mesh.get_local_rank("dp")];
  const int64_t length = rows.size(1) - 1;
  const at::Tensor logits = model(rows.narrow(1, 0, length));
  const at::Tensor loss = at::cross_entropy_loss(
      logits.flatten(0, 1), rows.narrow(1, 1, length).flatten());
  loss.backward();
  return loss.detach();
}

// One more step, with its collectives counted, which costs time.
void CountCollectives(const DeviceMesh& mesh, const std::function<void()>& step,
                      Json& result) {
  const ProcessGroup groups[] = {mesh["dp"].get_group(),
                                 mesh["tp"].get_group()};
  for (const ProcessGroup& group : groups) testing::Count(group).Reset();
  step();
  int64_t num_bytes = 0;
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce"}) {
    int64_t num_calls = 0;
    for (const ProcessGroup& group : groups) {
      if (group->getSize() == 1) continue;
      num_calls += testing::Count(group).calls(kind);
      num_bytes += testing::Count(group).bytes(kind);
    }
    result["collectives"][kind] = num_calls;
  }
  result["collective_bytes"] = num_bytes;
}

Json TrainAndMeasure(const Json& spec) {
  const testing::CheckDevice device(spec["device"].get<std::string>());
  // Some sandboxes with a GPU do not count host memory.
  const int64_t before = device.is_cuda() ? 0 : dcp::PrivateBytes();
  const int64_t tp = spec["tp"];
  const DeviceMesh mesh = init_device_mesh(
      device.name(), {get_world_size() / tp, tp}, {"dp", "tp"});
  llama::Llama model = MakeModel(spec, mesh);
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      MakeOptimizer(spec, model);
  std::string tokens = ReadFile(spec["data"]);
  const at::Tensor data =
      at::from_blob(tokens.data(),
                    {spec["steps"], spec["batch"], spec["length"]}, at::kLong)
          .to(device.device());

  Json result = {{"private_before_bytes", before}};
  for (int64_t step = 0; step < spec["steps"]; ++step) {
    if (spec["sharded"]) reset_step_report(*model);
    const double cpu_begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    const Clock::time_point begin = Clock::now();
    optimizer->zero_grad();
    const at::Tensor loss = ForwardBackward(model, data[step], mesh);
    device.Synchronize();
    const Clock::time_point middle = Clock::now();
    optimizer->step();
    device.Synchronize();
    const Clock::time_point end = Clock::now();
    result["seconds"].push_back(SecondsBetween(begin, end));
    result["cpu_seconds"].push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) -
                                    cpu_begin);
    result["optimizer_seconds"].push_back(SecondsBetween(middle, end));
    result["losses"].push_back(loss.item<double>());
  }
  result["private_peak_bytes"] = device.is_cuda() ? 0 : dcp::PeakPrivateBytes();
  result["device_peak_bytes"] = device.PeakBytes();
  int64_t shard_bytes = 0;
  for (const at::Tensor& shard : model->parameters()) {
    shard_bytes += static_cast<int64_t>(shard.nbytes());
  }
  result["shard_bytes"] = shard_bytes;
  result["unsharded_peak_bytes"] = 0;
  if (spec["sharded"]) {
    result["unsharded_peak_bytes"] = step_report(*model).unsharded_bytes_peak;
  }
  // Collectives on a GPU are not counted.
  if ((spec["sharded"] || tp > 1) && !device.is_cuda()) {
    const auto step = [&] {
      optimizer->zero_grad();
      ForwardBackward(model, data[0], mesh);
      optimizer->step();
    };
    CountCollectives(mesh, step, result);
  }
  return result;
}

int Main(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  init_process_group();
  TORCH_CHECK(arguments.size() == 2, "usage: train_bench SPEC.json OUT");
  const Json result = TrainAndMeasure(Json::parse(ReadFile(arguments[0])));
  std::ofstream(arguments[1] + "." + std::to_string(get_rank()) + ".json")
      << result;
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::Main(std::vector<std::string>(argv + 1, argv + argc));
}
