// SPDX-License-Identifier: Apache-2.0
// Trains with fsdp as a job file describes; the twin of torch_trainer.py, which
// describes the output. One process is one rank, which the environment sets:
//   parity_trainer JOB.json OUT

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/averaging/averaged_model.h"
#include "fsdp/averaging/averages_scope.h"
#include "fsdp/averaging/avg_fn.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "fsdp/replicate.h"
#include "nlohmann/json.hpp"
#include "tests/fsdp/parity/checkpoints.h"
#include "tests/fsdp/parity/job_model.h"
#include "tests/fsdp/parity/parallel.h"
#include "tests/testing/counting_backend.h"
#include "torch/optim/adam.h"

namespace fsdp::testing {
namespace {

using Json = nlohmann::json;

// All ranks must call it, because gathering is collective; rank 0 writes.
void WriteTensor(const std::string& path, const at::Tensor& tensor) {
  if (get_rank() != 0) return;
  const at::Tensor data = tensor.detach().contiguous();
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data.const_data_ptr()),
             static_cast<std::streamsize>(data.nbytes()));
  TORCH_CHECK(file.flush(), "cannot write '", path, "'");
}

void WriteJson(const std::string& path, const Json& value) {
  if (get_rank() == 0) std::ofstream(path) << value;
}

MixedPrecisionPolicy MixedPrecision(const Json& config,
                                    const torch::nn::Module& module) {
  MixedPrecisionPolicy policy{.param_dtype = DtypeNamed(config["param_dtype"])};
  if (config["reduce_dtype"] != "") {
    policy.reduce_dtype = DtypeNamed(config["reduce_dtype"]);
  }
  const std::string word = config["keep_dtype"];
  if (word.empty()) return policy;
  std::set<const c10::TensorImpl*> kept;
  for (const auto& item : module.named_parameters()) {
    if (item.key().find(word) != std::string::npos) {
      kept.insert(item.value().unsafeGetTensorImpl());
    }
  }
  policy.param_dtype_override_fn =
      [kept](const std::string&,
             const at::Tensor& parameter) -> std::optional<at::ScalarType> {
    if (kept.count(parameter.unsafeGetTensorImpl()) == 0) return std::nullopt;
    return parameter.scalar_type();
  };
  return policy;
}

void SetSwitches(const Json& switches, FSDPModule& root) {
  for (const auto& [name, value] : switches.items()) {
    if (name == "reduce_scatter_unused_params") {
      root.set_reduce_scatter_unused_params(value.get<bool>());
    } else if (name == "keep_unsharded_storage") {
      root.set_keep_unsharded_storage(value.get<bool>());
    } else if (name == "reduce_scatter_max_input_buffers") {
      root.set_reduce_scatter_max_input_buffers(value.get<int>());
    } else {
      TORCH_CHECK_VALUE(name == "separate_reduce_scatter_group",
                        "no switch of a job: '", name, "'");
      root.set_separate_reduce_scatter_group(value.get<bool>());
    }
  }
}

ReshardAfterForward ParseReshard(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_boolean()) return value.get<bool>();
  return value.get<int64_t>();
}

class Trainer {
 public:
  Trainer(const Json& job, const Json& config, std::string out)
      : job_(job),
        config_(config),
        out_(std::move(out)),
        tp_(config["tp"].get<int64_t>()) {}

  void Run();

 private:
  void BuildModel();
  void MakeMesh();
  void RecomputeBlocks();
  // Puts chosen parameters on a mesh of 2 by 2.
  void UseOwnMesh(FullyShardOptions& options);
  void Shard();
  std::unique_ptr<torch::optim::Optimizer> MakeMuon();
  std::unique_ptr<torch::optim::Optimizer> MakeOptimizer();
  void MakeAverage();
  // This rank's loss of one of a step's micro-batches.
  at::Tensor Loss(int64_t step, int64_t i);
  // Runs all of a step's micro-batches; returns the mean loss on all ranks.
  double Backward(int64_t step);
  double AverageLoss(int64_t step);
  // The tokens and targets of this rank; ranks that cut one model have the
  // same.
  at::Tensor Rows(int64_t microbatch) const;
  // Two backwards, of which the second fails, and a forward.
  void Fail(int64_t step);
  void Clip();
  void WriteGradients();
  void WriteParameters();
  void WriteCounts();
  void WritePlacements();

  const Json& job_;
  const Json& config_;
  std::string out_;
  int64_t tp_;  // ranks that cut one model
  Model model_;
  std::optional<DeviceMesh> mesh_;
  std::vector<std::string> shard_axes_;  // in mesh_, for fully_shard
  std::optional<FSDPModule> sharded_;
  std::set<ProcessGroup> groups_;  // all groups in which the model communicates
  // Null if the job has none; shared with the state of a checkpoint.
  std::shared_ptr<optim::AveragedModel> average_;
  at::Tensor data_;  // [micro-batches of all steps, batch, tokens and target]
};

void Trainer::BuildModel() {
  model_ = MakeModel(config_);
  if (config_["load"] == "") {
    LoadWeights(job_["init"].get<std::string>() + "/" +
                    config_["model"].get<std::string>(),
                *model_.module);
  }
  model_.module->to(DtypeNamed(config_["dtype"]));
  const int64_t frozen = config_["frozen_layer"];
  if (frozen < 0) return;
  for (const at::Tensor& parameter : model_.layers[frozen]->parameters()) {
    parameter.set_requires_grad(false);
  }
}

void Trainer::MakeMesh() {
  std::vector<int64_t> shape = config_["mesh"];
  std::vector<std::string> names = {"replicate", "shard"};
  names.erase(names.begin(),
              names.end() - static_cast<std::ptrdiff_t>(shape.size()));
  shard_axes_ = names;
  if (tp_ > 1) {
    shape.push_back(tp_);
    names.emplace_back("tp");
  }
  mesh_ = init_device_mesh("cpu", shape, names);
  const std::vector<ProcessGroup> of_mesh = mesh_->get_all_groups();
  groups_.insert(of_mesh.begin(), of_mesh.end());
}

// A Gpt recomputes by itself.
void Trainer::RecomputeBlocks() {
  const bool checkpoint = config_["checkpoint_activations"];
  apply_activation_checkpointing(
      *model_.module, [checkpoint](const torch::nn::Module& layer) {
        return checkpoint && layer.as<llama::BlockImpl>() != nullptr;
      });
}

void Trainer::UseOwnMesh(FullyShardOptions& options) {
  const DeviceMesh own =
      init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
  const std::vector<ProcessGroup> of_mesh = own.get_all_groups();
  groups_.insert(of_mesh.begin(), of_mesh.end());
  std::set<const c10::TensorImpl*> chosen;
  for (const auto& item : model_.module->named_parameters()) {
    if (item.key().find(config_["own_mesh"].get<std::string>()) !=
        std::string::npos) {
      chosen.insert(item.value().unsafeGetTensorImpl());
    }
  }
  options.shard_placement_fn =
      [own, chosen](const at::Tensor& parameter) -> ShardPlacementResult {
    if (chosen.count(parameter.unsafeGetTensorImpl()) == 0) return std::nullopt;
    return {fsdp::Shard(0), own};
  };
}

void Trainer::Shard() {
  if (shard_axes_.empty()) return;
  FullyShardOptions options{
      .mesh = (*mesh_)[shard_axes_],
      .reshard_after_forward = ParseReshard(config_["reshard_after_forward"])};
  if (config_["param_dtype"] != "") {
    options.mp_policy = MixedPrecision(config_, *model_.module);
  }
  if (config_["own_mesh"] != "") UseOwnMesh(options);
  const auto apply = [&](const std::shared_ptr<torch::nn::Module>& module) {
    if (!config_["replicate"]) return fully_shard(module, options);
    return replicate(module,
                     {.mesh = options.mesh, .mp_policy = options.mp_policy});
  };
  for (const auto& layer : model_.layers) apply(layer);
  sharded_ = apply(model_.module);
  SetSwitches(config_["switches"], *sharded_);
  if (config_["finalize"] != "") {
    sharded_->set_manual_backward_finalization(true);
  }
  for (FSDPModule module : fsdp_modules(*model_.module)) {
    if (config_["force_sum"]) module.set_force_sum_reduction_for_comms(true);
    for (const auto& group : module.state()->groups()) {
      const GroupConfig& config = group->config();
      for (const ProcessGroup& other :
           {config.post_forward_group, config.reduce_scatter_group}) {
        if (other) groups_.insert(other);
      }
    }
  }
}

// Of Gpt: Muon for the matrices within layers.
std::unique_ptr<torch::optim::Optimizer> Trainer::MakeMuon() {
  const double lr = job_["lr"];
  optim::MuonOptions muon(lr);
  muon.nesterov(config_["nesterov"]);
  const std::string rule = config_["adjust_lr_fn"];
  if (!rule.empty()) muon.adjust_lr_fn(rule);
  return std::make_unique<optim::MuonWithAdamW>(
      *model_.module, std::vector<std::string>{"tok.*", "pos.*", "head.*"},
      optim::MuonWithAdamWOptions{.muon = muon,
                                  .adamw = FusedAdamWOptions(lr)});
}

std::unique_ptr<torch::optim::Optimizer> Trainer::MakeOptimizer() {
  if (config_["optimizer"] == "muon") return MakeMuon();
  const std::vector<at::Tensor> shards = model_.module->parameters();
  const double lr = job_["lr"];
  if (config_["optimizer"] == "fused_adamw") {
    return std::make_unique<FusedAdamW>(shards, FusedAdamWOptions(lr));
  }
  return std::make_unique<torch::optim::Adam>(shards,
                                              torch::optim::AdamOptions(lr));
}

void Trainer::MakeAverage() {
  const std::string kind = config_["average"];
  if (kind.empty()) return;
  TORCH_CHECK_VALUE(kind == "ema" || kind == "mean", "no average of a job: '",
                    kind, "'");
  average_ = std::make_shared<optim::AveragedModel>(
      *model_.module,
      optim::AveragedModelOptions{
          .avg_fn = kind == "ema" ? optim::get_ema_avg_fn(
                                        config_["ema_decay"].get<double>())
                                  : nullptr});
}

at::Tensor Trainer::Loss(int64_t step, int64_t i) {
  const int64_t num = config_["accumulate"];
  const at::Tensor rows = Rows(step * num + i);
  const int64_t length = config_["row_length"].get<int64_t>() - 1;
  const at::Tensor logits = model_.forward(rows.narrow(1, 0, length))
                                .to(DtypeNamed(config_["dtype"]));
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}),
                                rows.narrow(1, 1, length).reshape({-1}));
}

double Trainer::AverageLoss(int64_t step) {
  const optim::AveragesScope averages(*average_, *model_.module);
  const c10::NoGradGuard no_grad;
  return Loss(step, config_["accumulate"].get<int64_t>() - 1).item<double>();
}

double Trainer::Backward(int64_t step) {
  const int64_t num = config_["accumulate"];
  double total = 0;
  for (int64_t i = 0; i < num; ++i) {
    const bool last = i == num - 1;
    if (config_["no_sync"]) {
      sharded_->set_requires_gradient_sync(last && config_["finalize"] == "");
    }
    if (config_["postpone_all_reduce"]) sharded_->set_requires_all_reduce(last);
    const at::Tensor loss = Loss(step, i);
    (loss / num).backward();
    total += loss.item<double>() / static_cast<double>(num);
  }
  if (config_["finalize"] != "") {
    sharded_->set_requires_gradient_sync(true);
    sharded_->finalize_backward(config_["finalize"] == "handle").wait();
  }
  return total;
}

at::Tensor Trainer::Rows(int64_t microbatch) const {
  return data_[microbatch].chunk(get_world_size() / tp_)[get_rank() / tp_];
}

void Trainer::Fail(int64_t step) {
  const int64_t length = config_["row_length"].get<int64_t>() - 1;
  const at::Tensor tokens =
      Rows(step * config_["accumulate"].get<int64_t>()).narrow(1, 0, length);
  model_.forward(tokens).sum().backward();
  const at::Tensor logits = model_.forward(tokens);
  logits.register_hook([](const at::Tensor&) -> at::Tensor {
    TORCH_CHECK_VALUE(false, "on purpose");
  });
  const std::string error =
      CatchErrorText([&logits] { logits.sum().backward(); });
  TORCH_CHECK(error.find("on purpose") != std::string::npos, error);
  model_.forward(tokens);
  sharded_->reset_iter_state();
}

void Trainer::Clip() {
  const double max_norm = config_["clip"];
  if (max_norm > 0) clip_grad_norm_(model_.module->parameters(), max_norm);
}

void Trainer::WriteGradients() {
  for (const auto& item : model_.module->named_parameters()) {
    if (!item.value().grad().defined()) continue;
    const std::optional<DTensor> parameter = dtensor_of(item.value());
    WriteTensor(out_ + "/grad." + item.key() + ".bin",
                parameter.has_value() ? parameter->grad()->full_tensor()
                                      : item.value().grad());
  }
}

void Trainer::WriteParameters() {
  for (const auto& item : model_.module->named_parameters()) {
    const std::optional<DTensor> parameter = dtensor_of(item.value());
    WriteTensor(
        out_ + "/param." + item.key() + ".bin",
        parameter.has_value() ? parameter->full_tensor() : item.value());
  }
  if (average_ == nullptr) return;
  const optim::AveragesScope averages(*average_, *model_.module);
  for (const auto& [name, parameter] : named_parameters(*model_.module)) {
    WriteTensor(out_ + "/param.average." + name + ".bin",
                parameter.full_tensor());
  }
}

void Trainer::WriteCounts() {
  Json counts;
  Json bytes;
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce",
                                "all_to_all", "broadcast"}) {
    int64_t num_calls = 0;
    int64_t num_bytes = 0;
    for (const ProcessGroup& group : groups_) {
      num_calls += Count(group).calls(operation);
      num_bytes += Count(group).bytes(operation);
    }
    counts[operation] = num_calls;
    bytes[operation] = num_bytes;
  }
  WriteJson(out_ + "/counts.json", counts);
  WriteJson(out_ + "/bytes.json", bytes);
}

void Trainer::WritePlacements() {
  Json texts = Json::object();
  for (const auto& [name, parameter] : named_parameters(*model_.module)) {
    texts[name] = to_string(parameter.placements());
  }
  WriteJson(out_ + "/placements.json", texts);
}

void Trainer::Run() {
  BuildModel();
  MakeMesh();
  if (tp_ > 1) Parallelize(*model_.module, (*mesh_)["tp"], config_["plan"]);
  RecomputeBlocks();
  Shard();
  WritePlacements();
  std::string tokens = ReadFile(job_["data"]);
  data_ = at::from_blob(tokens.data(),
                        {static_cast<int64_t>(tokens.size() / sizeof(int64_t))},
                        at::kLong)
              .view({-1, job_["batch"].get<int64_t>(),
                     job_["length"].get<int64_t>()});
  const std::unique_ptr<torch::optim::Optimizer> optimizer = MakeOptimizer();
  MakeAverage();
  const int64_t steps = config_["steps"];
  const int64_t first_step = config_["first_step"];
  if (config_["load"] != "") {
    LoadCheckpoint(config_["load"], first_step, *model_.module, *optimizer,
                   average_);
  }
  const int64_t num_losses = steps - first_step + (average_ ? 1 : 0);
  at::Tensor losses = at::empty({num_losses}, at::kDouble);
  for (int64_t step = first_step; step < steps; ++step) {
    if (step == config_["save_step"]) {
      SaveCheckpoint(config_["save"], step, *model_.module, *optimizer,
                     average_);
    }
    optimizer->zero_grad();
    if (config_["fails"]) Fail(step);
    for (const ProcessGroup& group : groups_) Count(group).Reset();
    losses[step - first_step] = Backward(step);
    if (step == 0) WriteGradients();
    Clip();
    optimizer->step();
    if (average_) average_->update_parameters(*model_.module);
    if (step == 1) WriteCounts();
  }
  if (average_) losses[steps - first_step] = AverageLoss(steps - 1);
  AllReduce(losses, ReduceOp::kAvg, world_group());
  WriteTensor(out_ + "/losses.bin", losses);
  WriteParameters();
}

int Main(const std::string& job_path, const std::string& out) {
  at::set_num_threads(1);
  init_process_group();
  const Json job = Json::parse(ReadFile(job_path));
  for (const Json& config : job["configs"]) {
    const std::string folder = out + "/" + config["name"].get<std::string>();
    std::filesystem::create_directories(folder);
    Trainer(job, config, folder).Run();
  }
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp::testing

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 3, "usage: parity_trainer JOB.json OUT");
  return fsdp::testing::Main(argv[1], argv[2]);
}
