// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/gpu/save_step.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRounds = 5;
constexpr int64_t kSaveSteps = 20;
// Staging must reach this share of one large copy's speed.
constexpr double kLeastPartOfCopy = 0.5;
constexpr int64_t kTensorElements = int64_t{4} << 20;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void CheckOk(const absl::Status& status) {
  TORCH_CHECK(status.ok(), status.ToString());
}

// Tensors on the device; each value follows from the element's place.
class Weights {
 public:
  Weights(const CheckDevice& device, int64_t num_tensors) : device_(device) {
    for (int64_t i = 0; i < num_tensors; ++i) {
      tensors_.push_back(
          at::empty({kTensorElements}, at::TensorOptions(device.device())));
      state_[absl::StrCat("weight", i)] = tensors_.back();
    }
    Fill();
  }

  StateDict& state() { return state_; }
  int64_t num_bytes() const {
    return static_cast<int64_t>(tensors_.size()) * kTensorElements *
           static_cast<int64_t>(sizeof(float));
  }

  void Fill() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].copy_(Expected(i));
    }
    device_.Synchronize();
  }

  void Zero() {
    for (at::Tensor& tensor : tensors_) tensor.zero_();
    device_.Synchronize();
  }

  bool AreAsFilled() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!at::equal(tensors_[i], Expected(i))) return false;
    }
    return true;
  }

  // Reads and writes each tensor, as an optimizer does; changes no value.
  void Update() {
    for (at::Tensor& tensor : tensors_) tensor.mul_(1.0);
  }

 private:
  // Values that float32 holds exactly.
  at::Tensor Expected(size_t i) const {
    const auto begin = static_cast<int64_t>(i);
    return at::arange(begin, begin + kTensorElements,
                      at::TensorOptions(at::kInt).device(device_.device()))
        .to(at::kFloat);
  }

  const CheckDevice& device_;
  std::vector<at::Tensor> tensors_;
  StateDict state_;
};

// Bytes per second for one large copy from the device to memory that a copy can
// use directly, or back; the best of several.
double CopyRate(const CheckDevice& device, bool to_device) {
  const at::Tensor there =
      at::ones({int64_t{16} << 20}, at::TensorOptions(device.device()));
  const at::Tensor here = at::ones(
      there.sizes(), at::TensorOptions().pinned_memory(device.is_cuda()));
  const at::Tensor& src = to_device ? here : there;
  const at::Tensor& dst = to_device ? there : here;
  double best = 0;
  for (int64_t i = 0; i < kRounds; ++i) {
    device.Synchronize();
    const Clock::time_point begin = Clock::now();
    dst.copy_(src, /*non_blocking=*/true);
    device.Synchronize();
    best =
        std::max(best, static_cast<double>(src.nbytes()) / SecondsSince(begin));
  }
  return best;
}

// Training steps: matrix products, then the optimizer. The state in a save must
// have been copied before the optimizer runs.
class Trainer {
 public:
  Trainer(const CheckDevice& device, Weights& weights)
      : device_(device),
        weights_(weights),
        a_(at::ones({Width(), Width()}, at::TensorOptions(device.device()))),
        c_(at::empty_like(a_)) {}

  // Seconds for one step, which waits for the copies in `save`, if any.
  double Step(SaveHandle* save) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < 8; ++i) at::mm_out(c_, a_, a_);
    if (save != nullptr) CheckOk(save->wait_staged());
    weights_.Update();
    device_.Synchronize();
    return SecondsSince(begin);
  }

  double MedianStep() {
    std::vector<double> seconds;
    for (int64_t i = 0; i < kSaveSteps; ++i) {
      seconds.push_back(Step(nullptr));
    }
    return Median(seconds);
  }

 private:
  int64_t Width() const { return device_.is_cuda() ? 8192 : 256; }

  const CheckDevice& device_;
  Weights& weights_;
  const at::Tensor a_;
  at::Tensor c_;
};

// Speed of staging alone, in bytes per second; the best of several.
double StagingRate(Weights& weights, AsyncSaver& saver,
                   const std::string& path) {
  double best = 0;
  for (int64_t i = 0; i < kRounds; ++i) {
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<SaveHandle> save = saver.save(weights.state(), path);
    CheckOk(save.status());
    CheckOk(save->wait_staged());
    const double seconds = SecondsSince(begin);
    CheckOk(save->wait());
    // The first save allocates the memory.
    if (i > 0) {
      best = std::max(best, static_cast<double>(weights.num_bytes()) / seconds);
    }
  }
  return best;
}

// Training while a save is under way.
void MeasureOverlap(Trainer& trainer, Weights& weights, AsyncSaver& saver,
                    const std::string& path, StepResult& result) {
  const double before = trainer.MedianStep();
  std::vector<double> seconds;
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<SaveHandle> save = saver.save(weights.state(), path);
  CheckOk(save.status());
  const double call = SecondsSince(begin);
  do {
    seconds.push_back(trainer.Step(&*save));
  } while (!save->done());
  CheckOk(save->wait());
  result.figures["save_call_seconds"] = call;
  result.figures["save_seconds"] = SecondsSince(begin);
  // The extra time in the call and in the first step, which waits for the
  // copies.
  result.figures["stall_seconds"] =
      call + std::max(0.0, seconds.front() - before);
  result.figures["steps_during_save"] = seconds.size();
  result.figures["step_seconds"] = before;
  result.figures["step_seconds_during_save"] = Median(seconds);
  result.figures["slowdown"] = Median(seconds) / before;
}

}  // namespace

StepResult CheckSave(const CheckDevice& device, const std::string& folder) {
  const c10::NoGradGuard no_grad;
  StepResult result;
  init_process_group();
  const std::string path = absl::StrCat(folder, "/save");
  Weights weights(device, device.is_cuda() ? 64 : 4);
  result.figures["state_bytes"] = weights.num_bytes();

  AsyncSaver saver;
  const double copy = CopyRate(device, /*to_device=*/false);
  const double staging = StagingRate(weights, saver, path);
  result.figures["copy_from_device_bytes_per_second"] = copy;
  result.figures["copy_to_device_bytes_per_second"] =
      CopyRate(device, /*to_device=*/true);
  result.figures["staging_bytes_per_second"] = staging;
  // A CPU's copy says nothing about staging from a GPU.
  if (device.is_cuda()) {
    result.Expect(staging >= kLeastPartOfCopy * copy,
                  absl::StrCat("staging reaches ", staging / copy,
                               " of the speed of one copy; it must reach ",
                               kLeastPartOfCopy));
  }

  Trainer trainer(device, weights);
  MeasureOverlap(trainer, weights, saver, path, result);

  weights.Zero();
  const Clock::time_point begin = Clock::now();
  CheckOk(load(weights.state(), path));
  device.Synchronize();
  result.figures["load_bytes_per_second"] =
      static_cast<double>(weights.num_bytes()) / SecondsSince(begin);
  result.Expect(weights.AreAsFilled(),
                "the tensors loaded are not those saved");
  std::filesystem::remove_all(path);
  return result;
}

}  // namespace fsdp::testing
