// SPDX-License-Identifier: Apache-2.0
// Collects losses and prints progress.
//
// Tested by tests/fsdp/examples/resume_test.py.
#include "fsdp/examples/train_llama/progress.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "dcp/base/peak_memory.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/process_group.h"

namespace llama {
namespace {

at::Tensor RoomFor(const Config& config, int64_t num_steps) {
  return at::zeros({num_steps},
                   at::TensorOptions(config.device).dtype(at::kDouble));
}

// This process's peak memory, or the GPU's.
double PeakMemoryMib(c10::Device device) {
  constexpr double kMib = 1 << 20;
  if (device.is_cpu()) {
    return static_cast<double>(dcp::PeakMemoryBytes()) / kMib;
  }
  const auto stats =
      c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return static_cast<double>(stats.allocated_bytes[0].peak) / kMib;
}

// "  1m20s left", or nothing at the end.
std::string TimeLeft(double seconds) {
  if (seconds <= 0) return "";
  return absl::StrCat(
      "  ", absl::FormatDuration(absl::Seconds(std::ceil(seconds))), " left");
}

}  // namespace

void Say(const std::string& line) {
  if (line.empty() || fsdp::get_rank() != 0) return;
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

Progress::Progress(const Config& config)
    : config_(config), losses_(RoomFor(config, config.steps)) {}

void Progress::Add(const at::Tensor& loss, double learning_rate) {
  losses_[num_steps_].copy_(loss);
  ++num_steps_;
  if (num_steps_ % config_.log_every == 0 || num_steps_ == config_.steps) {
    Print(learning_rate);
  }
}

at::Tensor Progress::Losses() {
  if (num_averaged_ < num_steps_) {
    std::vector<at::Tensor> window = {
        losses_.slice(0, num_averaged_, num_steps_)};
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    const fsdp::ProcessGroup world = fsdp::world_group();
    fsdp::IssueAndWait(*world, "all-reduce of losses",
                       [&] { return world->allreduce(window, average); });
    num_averaged_ = num_steps_;
  }
  return losses_.slice(0, 0, num_steps_);
}

void Progress::ContinueAfter(const at::Tensor& losses) {
  num_steps_ = num_averaged_ = num_printed_ = losses.size(0);
  losses_ =
      num_steps_ < config_.steps
          ? at::cat({losses, RoomFor(config_, config_.steps - num_steps_)})
          : losses;
  printed_at_ = Clock::now();
}

absl::Status Progress::WriteLosses() {
  if (config_.losses_out.empty()) return absl::OkStatus();
  const at::Tensor losses = Losses();
  if (fsdp::get_rank() != 0) return absl::OkStatus();
  std::ofstream file(config_.losses_out);
  for (int64_t step = 0; step < num_steps_; ++step) {
    file << absl::StrFormat("%.17g\n", losses[step].item<double>());
  }
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write losses to '", config_.losses_out, "'"));
}

void Progress::Print(double learning_rate) {
  const double loss = Losses()[num_steps_ - 1].item<double>();
  const std::chrono::duration<double> elapsed = Clock::now() - printed_at_;
  const double steps_per_second =
      static_cast<double>(num_steps_ - num_printed_) / elapsed.count();
  if (fsdp::get_rank() == 0) {
    absl::PrintF(
        "step %d of %d  loss %.4f  lr %.6g  %.0f tokens/s  "
        "peak memory %.0f MiB%s\n",
        num_steps_, config_.steps, loss, learning_rate,
        steps_per_second * static_cast<double>(config_.accumulate *
                                               config_.batch * config_.seq_len),
        PeakMemoryMib(losses_.device()),
        TimeLeft(static_cast<double>(config_.steps - num_steps_) /
                 steps_per_second));
    std::fflush(stdout);
  }
  num_printed_ = num_steps_;
  printed_at_ = Clock::now();
}

}  // namespace llama
