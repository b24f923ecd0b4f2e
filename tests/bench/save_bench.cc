// SPDX-License-Identifier: Apache-2.0
// One rank that saves and loads with fsdp/checkpoint, measured; torch_save.py
// is its twin and save_bench.py runs both, with a rank's environment.
//
//   save_bench save|steps|load|rank0 SPEC.json OUT    writes OUT.<rank>.json
//
// The state belongs to a model and Adam. Values follow from their places, so
// that every process that loads it can tell whether it is right.

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/placement.h"
#include "fsdp/mesh/process_group.h"
#include "nlohmann/json.hpp"
#include "tests/bench/process_memory.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// The pattern's constants: values are exact as floats, also with a salt added.
constexpr int64_t kPatternMask = (1 << 23) - 1;
constexpr int64_t kStep = 12;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void CheckOk(const absl::Status& status) {
  TORCH_CHECK(status.ok(), status.ToString());
}

void Barrier() { world_group()->barrier()->wait(); }

// Called by rank 0 while the others wait.
void OnRank0(const std::function<void()>& work) {
  if (get_rank() == 0) work();
  Barrier();
}

void SyncFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TORCH_CHECK(fd >= 0 && fsync(fd) == 0, "cannot sync '", path, "'");
  close(fd);
}

void Remove(const std::string& path) {
  OnRank0([&] {
    std::filesystem::remove_all(path);
    // Otherwise the disk would free the old blocks while the next file is
    // written.
    SyncFile(std::filesystem::path(path).parent_path());
  });
}

std::vector<std::string> ListFiles(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path());
  }
  return files;
}

void DropFromPageCache(const std::string& path) {
  OnRank0([&] {
    for (const std::string& file : ListFiles(path)) {
      SyncFile(file);
      const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      close(fd);
    }
  });
}

void ReadIntoPageCache(const std::string& path) {
  OnRank0([&] {
    std::vector<char> buffer(size_t{4} << 20);
    for (const std::string& file : ListFiles(path)) {
      std::ifstream stream(file, std::ios::binary);
      while (stream.read(buffer.data(),
                         static_cast<std::streamsize>(buffer.size()))) {
      }
    }
  });
}

// Bytes that this process had read from disks.
int64_t DiskReadBytes() {
  std::ifstream io("/proc/self/io");
  std::string name;
  int64_t value = 0;
  while (io >> name >> value && name != "read_bytes:") {
  }
  TORCH_CHECK(io, "/proc/self/io has no read_bytes");
  return value;
}

// The memory that `work` takes in addition to `before`.
int64_t AddedBytes(int64_t before, const std::function<void()>& work) {
  dcp::ForgetPeak();
  work();
  return dcp::PeakPrivateBytes() - before;
}

int64_t AddedBytes(const std::function<void()>& work) {
  return AddedBytes(dcp::PrivateBytes(), work);
}

class BenchState {
 public:
  // With `with_optimizer`, {"model": .., "optim": .., "step": ..}; without, the
  // parameters alone.
  BenchState(const Json& spec, bool with_optimizer)
      : mesh_(MakeMesh(spec["mesh"])) {
    StateDict model;
    StateDict optim;
    for (const Json& entry : spec["tensors"]) {
      const std::string name = entry[0];
      const std::vector<int64_t> shape = entry[1];
      model[name] = Add(shape);
      num_parameters_ = parts_.size();
      if (!with_optimizer) continue;
      optim[name] = StateDict{{"exp_avg", StateValue()},
                              {"exp_avg_sq", StateValue()},
                              {"step", at::full({}, kStep, at::kFloat)}};
    }
    if (!with_optimizer) {
      state_ = std::move(model);
      return;
    }
    for (auto& [name, entry] : optim) {
      const auto& shape = model.find(name)->get_if<DTensor>()->shape();
      auto& moments = *entry.template get_if<StateDict>();
      moments["exp_avg"] = Add(shape);
      moments["exp_avg_sq"] = Add(shape);
    }
    state_ = {{"model", std::move(model)},
              {"optim", StateDict{{"state", std::move(optim)}}},
              {"step", kStep}};
  }

  StateDict& state() { return state_; }

  int64_t num_bytes() const {
    int64_t bytes = 0;
    for (const Part& part : parts_) {
      bytes += static_cast<int64_t>(part.local.nbytes());
    }
    return bytes;
  }

  void Fill() {
    for (Part& part : parts_) part.local.copy_(Expected(part));
  }

  void Zero() {
    for (Part& part : parts_) part.local.zero_();
    if (StateValue* step = state_.find("step")) *step = 0;
  }

  void Check() const {
    for (const Part& part : parts_) {
      TORCH_CHECK(at::equal(part.local, Expected(part)), "tensor ", part.salt,
                  " is not what was saved");
    }
    const StateValue* step = state_.find("step");
    TORCH_CHECK(step == nullptr || *step->get_if<int64_t>() == kStep,
                "'step' is not what was saved");
  }

  void CopyTo(std::vector<uint8_t>& memory) const {
    size_t offset = 0;
    for (const Part& part : parts_) {
      std::memcpy(memory.data() + offset, part.local.const_data_ptr(),
                  part.local.nbytes());
      offset += part.local.nbytes();
    }
  }

  // Reads and writes every parameter and changes none.
  void StepOptimizer() {
    for (size_t i = 0; i < num_parameters_; ++i) parts_[i].local.mul_(1.0);
  }

 private:
  struct Part {
    at::Tensor local;
    int64_t begin;  // in the whole, in elements
    int64_t salt;
  };

  static DeviceMesh MakeMesh(const std::vector<int64_t>& shape) {
    return init_device_mesh(
        "cpu", shape,
        shape.size() == 1 ? std::vector<std::string>{"shard"}
                          : std::vector<std::string>{"replicate", "shard"});
  }

  DTensor Add(const std::vector<int64_t>& shape) {
    Placements placements(static_cast<size_t>(mesh_.ndim()), Replicate());
    placements.back() = Shard(0);
    std::vector<int64_t> stride(shape.size(), 1);
    for (size_t d = shape.size() - 1; d > 0; --d) {
      stride[d - 1] = stride[d] * shape[d];
    }
    const DTensorSpec spec = {mesh_, placements, shape, stride};
    at::Tensor local = at::empty(spec.local_shape(), at::kFloat);
    const std::vector<dcp::Box> boxes = spec.local_boxes();
    parts_.push_back({.local = local,
                      .begin = boxes[0].offsets[0] * stride[0],
                      .salt = static_cast<int64_t>(parts_.size())});
    return DTensor(local, spec);
  }

  static at::Tensor Expected(const Part& part) {
    return at::arange(part.begin, part.begin + part.local.numel(), at::kInt)
        .bitwise_and_(kPatternMask)
        .add_(part.salt)
        .to(at::kFloat)
        .view(part.local.sizes());
  }

  DeviceMesh mesh_;
  std::vector<Part> parts_;  // first the parameters
  size_t num_parameters_ = 0;
  StateDict state_;
};

// Runs everything once that a process does only once.
void WarmUp(const std::string& path) {
  StateDict state = {{"tensor", at::ones({1024})}, {"step", 0}};
  CheckOk(save(state, path));
  CheckOk(load(state, path));
  Remove(path);
}

void LoadAndCheck(BenchState& state, const std::string& path) {
  state.Zero();
  CheckOk(load(state.state(), path));
  state.Check();
}

// Loads on both ranks at once, into memory that exists already.
double CopySeconds(const BenchState& state, std::vector<uint8_t>& memory) {
  Barrier();
  const Clock::time_point begin = Clock::now();
  state.CopyTo(memory);
  return SecondsSince(begin);
}

Json MeasureSave(const Json& spec) {
  const std::string path = spec["path"];
  const bool check = spec["check"];
  BenchState state(spec, /*with_optimizer=*/true);
  state.Fill();
  WarmUp(path);
  std::vector<uint8_t> memory(static_cast<size_t>(state.num_bytes()));
  Json result = {{"bytes", state.num_bytes()}};

  Json sync_save;
  sync_save["added_bytes"] = AddedBytes([&] {
    Barrier();
    const Clock::time_point begin = Clock::now();
    CheckOk(save(state.state(), path));
    sync_save["durable"] = SecondsSince(begin);
  });
  if (check) LoadAndCheck(state, path);
  result["sync"] = Json::array({sync_save});

  malloc_trim(0);
  {
    // A prepared job's first save, as CheckpointManager does it.
    AsyncSaver prepared;
    CheckOk(prepared.prepare(state.state(), path));
    // Training goes on meanwhile.
    for (int i = 0; i < 10; ++i) CopySeconds(state, memory);
    Remove(path);
    Json run = {{"memcpy", CopySeconds(state, memory)}};
    Barrier();
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<SaveHandle> handle = prepared.save(state.state(), path);
    CheckOk(handle.status());
    CheckOk(handle->wait_staged());
    run["stall"] = SecondsSince(begin);
    CheckOk(handle->wait());
    run["memcpy_after"] = CopySeconds(state, memory);
    result["prepared"] = Json::array({run});
  }
  malloc_trim(0);
  const int64_t before = dcp::PrivateBytes();
  AsyncSaver saver;
  for (int64_t i = 0; i < spec["repeats"]; ++i) {
    Remove(path);
    Json run = {{"memcpy", CopySeconds(state, memory)}};
    run["added_bytes"] = AddedBytes(before, [&] {
      Barrier();
      const Clock::time_point begin = Clock::now();
      absl::StatusOr<SaveHandle> handle = saver.save(state.state(), path);
      CheckOk(handle.status());
      run["call"] = SecondsSince(begin);
      CheckOk(handle->wait_staged());
      run["stall"] = SecondsSince(begin);
      CheckOk(handle->wait());
      run["durable"] = SecondsSince(begin);
    });
    run["memcpy_after"] = CopySeconds(state, memory);
    result["async"].push_back(run);
    if (check) LoadAndCheck(state, path);
  }
  return result;
}

// One rank's training: matrix products, a collective, and an optimizer that
// goes over all parameters.
class Trainer {
 public:
  Trainer(BenchState& state, const Json& spec)
      : state_(state),
        num_products_(spec["products"]),
        a_(at::ones({spec["width"], spec["width"]})),
        c_(at::empty_like(a_)) {}

  // Returns whether any rank's save is under way.
  bool Step(std::optional<SaveHandle>& handle) {
    for (int64_t i = 0; i < num_products_; ++i) at::mm_out(c_, a_, a_);
    std::vector<at::Tensor> saving = {
        at::full({1}, handle.has_value() && !handle->done() ? 1.0 : 0.0)};
    world_group()->allreduce(saving)->wait();
    if (handle.has_value()) CheckOk(handle->wait_staged());
    state_.StepOptimizer();
    return saving[0].item<double>() > 0;
  }

  double SecondsPerStep(int64_t num_steps) {
    std::optional<SaveHandle> none;
    Barrier();
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < num_steps; ++i) Step(none);
    return SecondsSince(begin) / static_cast<double>(num_steps);
  }

 private:
  BenchState& state_;
  const int64_t num_products_;
  const at::Tensor a_;
  at::Tensor c_;
};

Json MeasureSteps(const Json& spec) {
  const std::string path = spec["path"];
  const int64_t num_steps = spec["steps"];
  BenchState state(spec, /*with_optimizer=*/true);
  state.Fill();
  WarmUp(path);
  Trainer trainer(state, spec);
  AsyncSaver saver;
  CheckOk(saver.save(state.state(), path)->wait());
  Remove(path);
  Json result;
  for (int64_t i = 0; i < spec["repeats"]; ++i) {
    Json run = {{"before", trainer.SecondsPerStep(num_steps)}};
    Barrier();
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<SaveHandle> started = saver.save(state.state(), path);
    CheckOk(started.status());
    std::optional<SaveHandle> handle = *started;
    int64_t count = 1;
    while (trainer.Step(handle)) ++count;
    run["saving"] = SecondsSince(begin);
    run["steps"] = count;
    CheckOk(handle->wait());
    run["after"] = trainer.SecondsPerStep(num_steps);
    result["overlapped"].push_back(run);
    Remove(path);
  }
  return result;
}

Json LoadOnce(BenchState& state, const std::string& path) {
  Json run;
  dcp::TransferStats stats;
  const int64_t disk_bytes = DiskReadBytes();
  run["added_bytes"] = AddedBytes([&] {
    Barrier();
    const Clock::time_point begin = Clock::now();
    CheckOk(load(state.state(), path, {.stats = &stats}));
    run["seconds"] = SecondsSince(begin);
  });
  run["read_bytes"] = stats.bytes_read.load();
  run["disk_bytes"] = DiskReadBytes() - disk_bytes;
  state.Check();
  return run;
}

Json MeasureLoad(const Json& spec) {
  const std::string path = spec["path"];
  BenchState state(spec, /*with_optimizer=*/true);
  WarmUp(spec["scratch"]);
  state.Zero();
  DropFromPageCache(path);
  Json result = {{"bytes", state.num_bytes()},
                 {"cold", Json::array({LoadOnce(state, path)})}};
  state.Zero();
  ReadIntoPageCache(path);
  result["warm"] = Json::array({LoadOnce(state, path)});
  return result;
}

Json MeasureRank0(const Json& spec) {
  const std::string path = spec["path"];
  BenchState state(spec, /*with_optimizer=*/false);
  WarmUp(spec["scratch"]);
  state.Zero();
  DropFromPageCache(path);
  Json run;
  run["added_bytes"] = AddedBytes([&] {
    Barrier();
    const Clock::time_point begin = Clock::now();
    CheckOk(load_from_rank0(state.state(), path,
                            {.memory_bytes = spec["window_bytes"]}));
    run["seconds"] = SecondsSince(begin);
  });
  state.Check();
  return {{"bytes", state.num_bytes()}, {"rank0", {run}}};
}

Json Measure(const std::string& what, const Json& spec) {
  if (what == "save") return MeasureSave(spec);
  if (what == "steps") return MeasureSteps(spec);
  if (what == "load") return MeasureLoad(spec);
  TORCH_CHECK(what == "rank0", "no measurement is called '", what, "'");
  return MeasureRank0(spec);
}

int Main(const std::vector<std::string>& arguments) {
  TORCH_CHECK(arguments.size() == 3,
              "usage: save_bench save|steps|load|rank0 SPEC.json OUT");
  at::set_num_threads(1);
  const c10::NoGradGuard no_grad;
  init_process_group();
  std::ifstream file(arguments[1]);
  TORCH_CHECK(file.is_open(), "cannot read '", arguments[1], "'");
  const Json result = Measure(arguments[0], Json::parse(file));
  std::ofstream(arguments[2] + "." + std::to_string(get_rank()) + ".json")
      << result;
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::Main(std::vector<std::string>(argv + 1, argv + argc));
}
