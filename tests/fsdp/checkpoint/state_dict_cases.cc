// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/checkpoint/state_dict_cases.h"

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "gtest/gtest.h"

namespace fsdp::testing {

TinyModel MakeModel(int64_t seed, bool tied) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  TinyModelOptions options;
  options.num_blocks = 2;
  options.tied = tied;
  return TinyModel(options);
}

void ShardModel(TinyModel& model, const std::vector<int64_t>& mesh_shape) {
  FullyShardOptions options;
  if (mesh_shape.size() == 1) {
    options.mesh = init_device_mesh(c10::kCPU, mesh_shape, {"shard"});
  } else {
    options.mesh =
        init_device_mesh(c10::kCPU, mesh_shape, {"replicate", "shard"});
  }
  for (const auto& block : *model->blocks) fully_shard(block, options);
  fully_shard(model, options);
}

double TrainStep(TinyModel& model, torch::optim::Optimizer& optimizer,
                 int64_t step, int64_t rank, int64_t world) {
  const torch::Tensor batch =
      TinyBatch(step, kBatch).narrow(0, rank * kBatch / world, kBatch / world);
  optimizer.zero_grad();
  const torch::Tensor loss = TinyLoss(model, batch);
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

OptimizerPtr MakeAdamW(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(
      parameters, torch::optim::AdamWOptions(1e-2));
}

const StateDict& Dict(const StateValue& value) {
  return *value.get_if<StateDict>();
}

std::vector<std::string> ListKeys(const StateDict& dict) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict) keys.push_back(key);
  return keys;
}

torch::Tensor WholeTensor(const StateValue& value) {
  if (const auto* tensor = value.get_if<DTensor>()) {
    return tensor->full_tensor();
  }
  const auto* tensor = value.get_if<at::Tensor>();
  return tensor == nullptr ? torch::Tensor() : *tensor;
}

void ExpectSame(const StateValue& a, const StateValue& b,
                const std::string& name, double tolerance) {
  SCOPED_TRACE(name);
  if (const auto* dict = a.get_if<StateDict>()) {
    ASSERT_NE(b.get_if<StateDict>(), nullptr);
    EXPECT_EQ(ListKeys(*dict), ListKeys(Dict(b)));
    for (const auto& [key, value] : *dict) {
      ASSERT_NE(Dict(b).find(key), nullptr) << key;
      ExpectSame(value, *Dict(b).find(key), name + "." + key, tolerance);
    }
    return;
  }
  const auto items_of = [](const StateValue& value) {
    if (const auto* tuple = value.get_if<StateTuple>()) return &tuple->items;
    return value.get_if<StateList>();
  };
  if (const StateList* list = items_of(a)) {
    ASSERT_NE(items_of(b), nullptr);
    ASSERT_EQ(list->size(), items_of(b)->size());
    for (size_t i = 0; i < list->size(); ++i) {
      ExpectSame((*list)[i], (*items_of(b))[i], name, tolerance);
    }
    return;
  }
  if (const torch::Tensor whole = WholeTensor(a); whole.defined()) {
    const torch::Tensor other = WholeTensor(b);
    ASSERT_TRUE(other.defined());
    EXPECT_EQ(whole.scalar_type(), other.scalar_type());
    EXPECT_TRUE(torch::allclose(whole, other, tolerance, tolerance))
        << whole << "\n"
        << other;
    return;
  }
  ASSERT_EQ(a.variant().index(), b.variant().index());
  if (const auto* text = a.get_if<std::string>()) {
    EXPECT_EQ(*text, *b.get_if<std::string>());
  }
  if (const auto* number = a.get_if<double>()) {
    EXPECT_EQ(*number, *b.get_if<double>());
  }
  if (const auto* flag = a.get_if<bool>()) {
    EXPECT_EQ(*flag, *b.get_if<bool>());
  }
}

}  // namespace fsdp::testing
