// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/checkpoint/layouts.h"

#include <optional>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros_like.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace fsdp::testing {

int Layout::world() const {
  int64_t size = 1;
  for (const int64_t extent : mesh) size *= extent;
  return static_cast<int>(size);
}

std::vector<Layout> Layouts() {
  return {
      {"one", {1}, {Shard(0)}},
      {"rows2", {2}, {Shard(0)}},
      {"columns3", {3}, {Shard(1)}},
      {"rows4", {4}, {Shard(0)}},
      {"hsdp", {2, 2}, {Replicate(), Shard(0)}},
      {"fsdp_tp", {2, 2}, {StridedShard(0, 2), Shard(0)}},
      {"grid", {2, 2}, {Shard(0), Shard(1)}},
      {"replicated", {2}, {Replicate()}},
  };
}

DeviceMesh MakeMesh(const Layout& layout) {
  std::vector<std::string> names;
  for (size_t i = 0; i < layout.mesh.size(); ++i) {
    names.push_back(absl::StrCat("axis", i));
  }
  return init_device_mesh("cpu", layout.mesh, names);
}

at::Tensor Whole(int64_t seed, at::ScalarType type) {
  return (at::arange(35, at::kFloat) * 0.5 + static_cast<double>(seed))
      .view({7, 5})
      .to(type);
}

DTensor Placed(const at::Tensor& whole, const DeviceMesh& mesh,
               const Placements& placements) {
  return distribute_tensor(whole, mesh, placements,
                           /*src_data_rank=*/std::nullopt);
}

StateDict MakeState(const Layout& layout, const DeviceMesh& mesh, bool filled) {
  const auto made = [&](at::Tensor whole) {
    return filled ? whole : at::zeros_like(whole);
  };
  const auto matrix = [&](int64_t seed, at::ScalarType type) {
    return Placed(made(Whole(seed, type)), mesh, layout.placements);
  };
  return {
      {"model", StateDict{{"a.weight", matrix(1, at::kFloat)},
                          {"b.weight", matrix(2, at::kBFloat16)},
                          {"running", made(at::arange(4, at::kLong))}}},
      {"optim",
       StateDict{{"state",
                  StateDict{{"a.weight",
                             StateDict{{"step", made(at::full({}, 3.0))},
                                       {"exp_avg", matrix(4, at::kFloat)}}}}},
                 {"param_groups",
                  StateList{StateDict{
                      {"lr", filled ? 0.25 : 0.0},
                      {"params", filled ? StateList{"a.weight", "b.weight"}
                                        : StateList{}}}}}}},
      {"step", filled ? 12 : 0},
      {"name", filled ? "run" : ""},
      {"rng", StateBytes{filled ? std::string("\0\xff", 2) : ""}},
  };
}

void ExpectEqual(const StateValue& actual, const StateValue& expected,
                 const std::string& name) {
  if (const auto* dict = expected.get_if<StateDict>()) {
    for (const auto& [key, value] : *dict) {
      const StateValue* found = actual.get_if<StateDict>()->find(key);
      ASSERT_NE(found, nullptr) << name << "." << key;
      ExpectEqual(*found, value, absl::StrCat(name, ".", key));
    }
  } else if (const auto* list = expected.get_if<StateList>()) {
    const auto& items = *actual.get_if<StateList>();
    ASSERT_EQ(items.size(), list->size()) << name;
    for (size_t i = 0; i < items.size(); ++i) {
      ExpectEqual(items[i], (*list)[i], absl::StrCat(name, ".", i));
    }
  } else if (const auto* sharded = expected.get_if<DTensor>()) {
    EXPECT_TRUE(
        at::equal(actual.get_if<DTensor>()->to_local(), sharded->to_local()))
        << name;
  } else if (const auto* tensor = expected.get_if<at::Tensor>()) {
    EXPECT_TRUE(at::equal(*actual.get_if<at::Tensor>(), *tensor)) << name;
  } else if (const auto* number = expected.get_if<int64_t>()) {
    EXPECT_EQ(*actual.get_if<int64_t>(), *number) << name;
  } else if (const auto* real = expected.get_if<double>()) {
    EXPECT_EQ(*actual.get_if<double>(), *real) << name;
  } else if (const auto* text = expected.get_if<std::string>()) {
    EXPECT_EQ(*actual.get_if<std::string>(), *text) << name;
  } else if (const auto* bytes = expected.get_if<StateBytes>()) {
    EXPECT_EQ(*actual.get_if<StateBytes>(), *bytes) << name;
  } else {
    ADD_FAILURE() << name << " has a kind that is not compared";
  }
}

}  // namespace fsdp::testing
