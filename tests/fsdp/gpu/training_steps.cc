// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/training_steps.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "fsdp/extensions/float8.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/report.h"
#include "tests/fsdp/gpu/host_backend.h"
#include "tests/fsdp/gpu/small_training.h"

namespace fsdp::testing {
namespace {

constexpr int64_t kSteps = 8;
// Sums of float32 in another order.
constexpr double kRounding = 1e-4;

// On a GPU large enough for streams to run at once, on a CPU quick.
llama::ModelOptions SizesFor(const CheckDevice& device) {
  if (!device.is_cuda()) return {.dim = 64, .num_layers = 2, .ffn_dim = 176};
  return {.dim = 512, .num_layers = 6, .ffn_dim = 1408};
}

std::vector<double> TrainPlain(const CheckDevice& device) {
  return SmallTraining(device, {.sharded = false, .sizes = SizesFor(device)})
      .Train(kSteps);
}

std::vector<double> TrainSharded(const CheckDevice& device,
                                 const FullyShardOptions& sharding,
                                 bool communicates) {
  return SmallTraining(device, {.communicates = communicates,
                                .sharding = sharding,
                                .sizes = SizesFor(device)})
      .Train(kSteps);
}

// Adds the largest difference from `expected` as a figure, and a problem if it
// is above `limit`.
void Compare(const std::vector<double>& found,
             const std::vector<double>& expected, const std::string& what,
             double limit, StepResult& result) {
  const double difference = LargestDifference(found, expected);
  result.figures[absl::StrCat(what, "_loss_difference")] = difference;
  result.Expect(difference <= limit,
                absl::StrCat(what, ": the losses differ by ", difference,
                             " from those expected; the limit is ", limit));
}

void CheckAllReduce(const CheckDevice& device, StepResult& result) {
  const ProcessGroup group = world_group();
  std::vector<at::Tensor> tensors = {
      at::full({4}, 3.0, at::TensorOptions(device.device()))};
  WaitForWork(
      IssueWork(*group, "sum", [&] { return group->allreduce(tensors); }),
      *group, "sum");
  result.Expect(tensors[0].sum().item<float>() == 12,
                "an all-reduce of one rank changed its tensor");
  const std::string backend =
      group->getBackend(device.device().type())->getBackendName();
  result.figures["backend"] = backend;
  result.Expect(backend == (device.is_cuda() ? "nccl" : "gloo"),
                absl::StrCat("the backend is ", backend));
}

// Each step's peak: on a GPU of all memory, on a CPU of gathered bytes.
std::vector<int64_t> StepPeaks(const CheckDevice& device,
                               SmallTraining& training,
                               std::vector<double>& losses) {
  std::vector<int64_t> peaks;
  for (int64_t step = 0; step < kSteps; ++step) {
    device.ResetPeak();
    reset_step_report(*training.model());
    losses.push_back(training.Step().item<double>());
    device.Synchronize();
    peaks.push_back(
        device.is_cuda()
            ? device.PeakBytes()
            : static_cast<int64_t>(
                  step_report(*training.model()).unsharded_bytes_peak));
  }
  return peaks;
}

DeviceMesh MeshOverHost(const CheckDevice& device,
                        const std::vector<int64_t>& shape,
                        const std::vector<std::string>& names) {
  DeviceMesh mesh = init_device_mesh(device.name(), shape, names);
  for (const ProcessGroup& group : mesh.get_all_groups()) {
    UseHost(group, mesh.device_type());
  }
  return mesh;
}

// Trains on this rank's part of each batch and compares both ranks' mean loss
// with the whole batch's loss.
void CheckTwoRanks(const CheckDevice& device, const FullyShardOptions& sharding,
                   int64_t num_microbatches,
                   const std::vector<double>& expected, const std::string& what,
                   double limit, StepResult& result) {
  SmallTraining training(device, {.sharding = sharding,
                                  .num_microbatches = num_microbatches,
                                  .sizes = SizesFor(device)});
  std::vector<at::Tensor> sums = {
      at::tensor(training.Train(kSteps), at::kDouble)};
  const ProcessGroup group = world_group();
  WaitForWork(IssueWork(*group, "sum", [&] { return group->allreduce(sums); }),
              *group, "sum");
  const at::Tensor means = sums[0] / 2;
  const double* mean = means.const_data_ptr<double>();
  Compare({mean, mean + kSteps}, expected, what, limit, result);
  const StepReport report = step_report(*training.model());
  const int64_t num_collectives = sharding.mesh->ndim() == 1
                                      ? report.num_all_gathers
                                      : report.num_all_reduces;
  result.Expect(num_collectives > 0,
                absl::StrCat(what, ": training made no collectives"));
}

// Expects shards and gradients in the CPU's memory, pinned if the device has
// pinned memory.
void CheckOffloaded(const CheckDevice& device, SmallTraining& training,
                    StepResult& result) {
  for (const auto& item : training.model()->named_parameters()) {
    const at::Tensor& shard = item.value();
    result.Expect(shard.is_cpu(),
                  absl::StrCat(item.key(), " is on ", shard.device().str()));
    result.Expect(shard.grad().is_cpu(),
                  absl::StrCat("the gradient of ", item.key(), " is on ",
                               shard.grad().device().str()));
    if (device.is_cuda()) {
      result.Expect(shard.is_pinned(),
                    absl::StrCat(item.key(), " is not in pinned memory"));
    }
  }
}

}  // namespace

StepResult CheckEqualToCpu(const CheckDevice& device) {
  StepResult result;
  init_process_group();
  const std::vector<double> expected =
      SmallTraining(CheckDevice("cpu"), {.sharded = false}).Train(kSteps);
  SmallTraining training(device, {});
  Compare(training.Train(kSteps), expected, "sharded", 1e-3, result);
  SmallTraining alone(device, {.communicates = false});
  Compare(alone.Train(kSteps), expected, "alone", 1e-3, result);
  CheckAllReduce(device, result);
  const StepReport report = step_report(*training.model());
  result.figures["num_all_gathers"] = report.num_all_gathers;
  result.figures["num_reduce_scatters"] = report.num_reduce_scatters;
  result.Expect(report.num_all_gathers > 0 && report.num_reduce_scatters > 0,
                "training made no collectives");
  result.figures["last_loss"] = expected.back();
  return result;
}

StepResult CheckMemory(const CheckDevice& device) {
  StepResult result;
  const std::vector<double> expected = TrainPlain(device);
  std::vector<double> losses;
  SmallTraining training(device, {.sizes = SizesFor(device)});
  const std::vector<int64_t> peaks = StepPeaks(device, training, losses);
  Compare(losses, expected, "sharded", kRounding, result);
  result.figures["peak_bytes_by_step"] = peaks;
  // The first step allocates the optimizer's state.
  const auto [least, most] =
      std::minmax_element(peaks.begin() + 2, peaks.end());
  result.figures["peak_bytes"] = *most;
  result.Expect(
      *least == *most,
      absl::StrCat("the peak of memory is between ", *least, " and ", *most,
                   " bytes from the third step on; it must "
                   "be the same"));
  return result;
}

StepResult CheckPrecision(const CheckDevice& device) {
  StepResult result;
  const std::vector<double> expected = TrainPlain(device);
  {
    FullyShardOptions sharding;
    sharding.mp_policy = {.param_dtype = at::kBFloat16,
                          .reduce_dtype = at::kFloat};
    Compare(TrainSharded(device, sharding, true), expected, "bfloat16", 2e-2,
            result);
    Compare(TrainSharded(device, sharding, false), expected, "bfloat16_alone",
            2e-2, result);
  }
  {
    FullyShardOptions sharding;
    sharding.all_gather_extension_fn =
        [](const std::string&,
           const at::Tensor& parameter) -> std::optional<AllGatherExtension> {
      if (parameter.dim() != 2) return std::nullopt;
      return float8_all_gather();
    };
    Compare(TrainSharded(device, sharding, true), expected, "float8", 5e-2,
            result);
  }
  FullyShardOptions sharding;
  sharding.offload_policy = CPUOffloadPolicy{.pin_memory = device.is_cuda()};
  Compare(TrainSharded(device, sharding, false), expected, "offload_alone",
          kRounding, result);
  SmallTraining training(device,
                         {.sharding = sharding, .sizes = SizesFor(device)});
  Compare(training.Train(kSteps), expected, "offload", kRounding, result);
  CheckOffloaded(device, training, result);
  return result;
}

StepResult CheckRanks(const CheckDevice& device) {
  StepResult result;
  init_process_group({.backend = "gloo"});
  TORCH_CHECK(get_world_size() == 2, "the step is for two ranks, not ",
              get_world_size());
  FullyShardOptions sharding;
  sharding.mesh = MeshOverHost(device, {2}, {"shard"});
  const std::vector<double> expected = TrainPlain(device);
  CheckTwoRanks(device, sharding, 1, expected, "sharded", kRounding, result);
  sharding.mp_policy = {.param_dtype = at::kBFloat16,
                        .reduce_dtype = at::kFloat};
  CheckTwoRanks(device, sharding, 1, expected, "bfloat16", 2e-2, result);
  sharding.mp_policy = {};
  sharding.mesh = MeshOverHost(device, {2, 1}, {"replicate", "shard"});
  CheckTwoRanks(device, sharding, 2, expected, "hsdp", kRounding, result);
  return result;
}

StepResult CheckParallel(const CheckDevice& device) {
  StepResult result;
  const std::vector<double> expected = TrainPlain(device);
  for (const char* plan : {"tp", "sp", "sp_loss"}) {
    for (const bool sharded : {false, true}) {
      SmallTraining training(
          device,
          {.sharded = sharded, .plan = plan, .sizes = SizesFor(device)});
      Compare(training.Train(kSteps), expected,
              absl::StrCat(plan, sharded ? "_sharded" : ""), kRounding, result);
    }
  }
  return result;
}

}  // namespace fsdp::testing
