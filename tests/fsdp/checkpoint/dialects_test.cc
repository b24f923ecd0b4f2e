// SPDX-License-Identifier: Apache-2.0
// Training goes on from checkpoints that other frameworks wrote: three ranks
// load model and optimizer state, from the framework's files and from
// dcp-convert's output.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/placement.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/fsdp/checkpoint/named_module.h"
#include "tests/testing/golden.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "torch/optim/adamw.h"

namespace fsdp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::TempDir;
using ::fsdp::testing::MakeNamedModule;
using ::fsdp::testing::NamedTensor;
using ::fsdp::testing::RunRanks;

// A case's contents according to the framework's library: each tensor's bytes.
struct Expected {
  std::map<std::string, std::string> bytes;
  std::map<std::string, dcp::TensorEntry> tensors;
};

Expected ReadExpected(const TempDir& dir, const std::string& name) {
  const absl::StatusOr<std::unique_ptr<dcp::Checkpoint>> opened =
      OpenCheckpoint(CopyGolden(dir, name + ".expected.safetensors"));
  EXPECT_OK(opened);
  Expected expected;
  absl::StatusOr<std::map<std::string, std::string>> bytes = LoadAll(**opened);
  EXPECT_OK(bytes);
  expected.bytes = *std::move(bytes);
  for (const dcp::CheckpointEntry& entry : (*opened)->entries()) {
    expected.tensors[entry.fqn] = *entry.tensor();
  }
  return expected;
}

// The parameters in each optimizer group.
std::vector<std::vector<std::string>> ReadGroups(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<dcp::Checkpoint>> opened =
      OpenCheckpoint(path);
  EXPECT_OK(opened);
  EXPECT_OK((*opened)->LocateAll());
  std::vector<std::vector<std::string>> groups;
  for (;;) {
    const auto index = (*opened)->Find(
        absl::StrCat("optimizer.param_groups.", groups.size(), ".params"));
    if (!index.has_value()) return groups;
    const dcp::ObjectEntry& list = *(*opened)->entries()[*index].object();
    std::vector<std::string>& names = groups.emplace_back();
    for (const dcp::Value& name : list.value.items()) {
      names.emplace_back(name.text());
    }
  }
}

// A module that has only the expected tensors, and an optimizer for it.
class Training {
 public:
  Training(const Expected& expected,
           const std::vector<std::vector<std::string>>& groups)
      : root_(MakeModule(expected, groups)) {
    std::vector<torch::optim::OptimizerParamGroup> of_optimizer;
    fully_shard(root_, {.mesh = init_device_mesh("cpu", {get_world_size()})});
    const auto parameters = root_->named_parameters();
    for (const auto& group : groups) {
      std::vector<at::Tensor> tensors;
      for (const std::string& name : group) tensors.push_back(parameters[name]);
      of_optimizer.emplace_back(std::move(tensors));
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(
        std::move(of_optimizer), torch::optim::AdamWOptions(0.001));
  }

  torch::nn::Module& module() { return *root_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  static std::shared_ptr<torch::nn::Module> MakeModule(
      const Expected& expected,
      const std::vector<std::vector<std::string>>& groups) {
    std::set<std::string> trained;
    for (const auto& group : groups) trained.insert(group.begin(), group.end());
    std::vector<NamedTensor> tensors;
    for (const auto& [fqn, tensor] : expected.tensors) {
      absl::string_view name = fqn;
      if (!absl::ConsumePrefix(&name, "model.")) continue;
      tensors.push_back({.name = std::string(name),
                         .shape = {tensor.shape.begin(), tensor.shape.end()},
                         .is_buffer = tensor.dtype != dcp::DType::kFloat32,
                         .is_trained = trained.contains(std::string(name))});
    }
    return MakeNamedModule(tensors);
  }

  const std::shared_ptr<torch::nn::Module> root_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

// Compares every tensor of `value`, which is called `name`; returns how many.
int ExpectEqual(const std::string& name, const StateValue& value,
                const Expected& expected) {
  int count = 0;
  if (const auto* dict = value.get_if<StateDict>()) {
    for (const auto& [key, inner] : *dict) {
      count += ExpectEqual(absl::StrCat(name, ".", key), inner, expected);
    }
    return count;
  }
  at::Tensor tensor;
  if (const auto* sharded = value.get_if<DTensor>()) {
    tensor = sharded->full_tensor();
  } else if (const auto* whole = value.get_if<at::Tensor>()) {
    tensor = *whole;
  } else {
    return 0;
  }
  tensor = tensor.contiguous();
  const auto found = expected.bytes.find(name);
  EXPECT_NE(found, expected.bytes.end()) << name;
  if (found == expected.bytes.end()) return 0;
  EXPECT_EQ(std::string(static_cast<const char*>(tensor.const_data_ptr()),
                        tensor.nbytes()),
            found->second)
      << name;
  return 1;
}

void ExpectResumes(const std::string& path, const Expected& expected,
                   bool from_rank0) {
  SCOPED_TRACE(path);
  Training training(expected, ReadGroups(path));
  ASSERT_OK_AND_ASSIGN(auto states,
                       get_state_dict(training.module(), training.optimizer()));
  StateDict state = {{"model", states.first}, {"optimizer", states.second}};
  ASSERT_OK(from_rank0 ? load_from_rank0(state, path) : load(state, path));
  ASSERT_OK(set_state_dict(training.module(), training.optimizer(),
                           *state.find("model")->get_if<StateDict>(),
                           *state.find("optimizer")->get_if<StateDict>()));
  ASSERT_OK_AND_ASSIGN(states,
                       get_state_dict(training.module(), training.optimizer()));
  const int count =
      ExpectEqual("model", StateValue(states.first), expected) +
      ExpectEqual("optimizer.state", *states.second.find("state"), expected);
  EXPECT_EQ(count, static_cast<int>(expected.bytes.size()));
  for (const torch::optim::OptimizerParamGroup& group :
       training.optimizer().param_groups()) {
    EXPECT_EQ(group.options().get_lr(), 0.125);
  }
}

class ResumeDialectTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ResumeDialectTest, OnAnotherNumberOfRanks) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, GetParam());
  const std::string converted = dir.Join("dcp");
  const Expected expected = ReadExpected(dir, GetParam());
  dcp::ConvertOptions options;
  ASSERT_OK_AND_ASSIGN(options.mesh, dcp::ParseMesh("shard=4"));
  ASSERT_OK(
      dcp::ConvertCheckpoint(Disk(), path, converted, std::move(options)));
  RunRanks(3, [&] {
    init_process_group();
    ExpectResumes(path, expected, /*from_rank0=*/false);
    ExpectResumes(path, expected, /*from_rank0=*/true);
    ExpectResumes(converted, expected, /*from_rank0=*/false);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, ResumeDialectTest,
    ::testing::Values("dialects/deepspeed/zero2_ws3",
                      "dialects/deepspeed/zero2_roundrobin_ws2",
                      "dialects/deepspeed/zero3_ws2",
                      "dialects/deepspeed/zero3_subgroups_ws2",
                      "dialects/verl/verl_fsdp2_ws2",
                      "dialects/verl/verl_fsdp2_hsdp_2x2",
                      "dialects/accelerate/accelerate_fsdp2_sharded_ws2",
                      "dialects/accelerate/accelerate_fsdp2_full_ws2"),
    [](const auto& info) {
      const std::string& name = info.param;
      return name.substr(name.rfind('/') + 1);
    });

}  // namespace
}  // namespace fsdp
