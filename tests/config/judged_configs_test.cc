// SPDX-License-Identifier: Apache-2.0
// Reads small configs as the programs' own code does (tests/golden/configs),
// and refuses those that the programs refuse.
#include <cstdint>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/dialect_table.h"
#include "config/explain/learning_rate.h"
#include "config/explain/mesh_plan.h"
#include "config/read_config.h"
#include "dcp/tensor/dtype.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using Json = nlohmann::json;

const Json& Cases() {
  static const Json& cases = *new Json([] {
    std::ifstream file("tests/golden/configs/configs.json");
    return Json::parse(file);
  }());
  return cases;
}

std::vector<std::string> Problems(const Findings& findings) {
  std::vector<std::string> problems;
  for (const Finding& finding : findings.list()) {
    if (finding.kind == Finding::Kind::kProblem) {
      problems.push_back(to_string(finding));
    }
  }
  return problems;
}

std::string Word(const std::optional<dcp::DType>& type) {
  return type.has_value() ? std::string(dcp::TorchName(*type)) : "none";
}

// A cast to the present type does not count.
std::string ExpectedWord(const Json& type, const std::string& present) {
  if (type.is_null() || type.get<std::string>() == present) return "none";
  return type.get<std::string>();
}

void ExpectMesh(const Json& expected, const MeshPlan& plan) {
  const std::vector<int64_t> ranks = {
      plan.replicate, plan.shard, plan.context_parallel, plan.tensor_parallel,
      plan.pipeline_parallel};
  EXPECT_EQ(ranks, expected["mesh"].get<std::vector<int64_t>>());
  EXPECT_EQ(plan.expert_parallel, expected.value("experts", int64_t{1}));
}

void ExpectSharding(const Json& expected, const TrainConfig& config) {
  const ShardingConfig& sharding = config.sharding;
  const bool* frees = std::get_if<bool>(&*sharding.reshard_after_forward);
  EXPECT_EQ(frees == nullptr || *frees, expected["frees"].get<bool>());
  EXPECT_EQ(*sharding.cpu_offload, expected["cpu_offload"].get<bool>());
  EXPECT_EQ(*sharding.activation_checkpointing,
            expected["recomputes"].get<int64_t>());
  EXPECT_EQ(*sharding.activation_cpu_offload,
            expected.value("offloads_activations", false));
  const PrecisionConfig& precision = config.precision;
  const std::string dtype = expected["dtype"];
  EXPECT_EQ(dcp::TorchName(*precision.dtype), dtype);
  EXPECT_EQ(Word(*precision.param_dtype),
            ExpectedWord(expected["param_dtype"], dtype));
  if (precision.reduce_dtype->has_value()) {
    EXPECT_EQ(Word(*precision.reduce_dtype),
              expected["reduce_dtype"].get<std::string>());
  }
}

void ExpectLoop(const Json& expected, const LoopConfig& loop) {
  EXPECT_DOUBLE_EQ(**loop.lr, expected["lr"].get<double>());
  EXPECT_DOUBLE_EQ(**loop.weight_decay, expected["weight_decay"].get<double>());
  EXPECT_DOUBLE_EQ(**loop.eps, expected["eps"].get<double>());
  EXPECT_DOUBLE_EQ(**loop.beta1, expected["betas"][0].get<double>());
  EXPECT_DOUBLE_EQ(**loop.beta2, expected["betas"][1].get<double>());
  EXPECT_DOUBLE_EQ(**loop.max_norm, expected["max_norm"].get<double>());
  constexpr int64_t kSteps = 100;
  for (const Json& point : expected["factors"]) {
    // prime-rl's curves end at the factor 1e-8 instead of 0.
    EXPECT_NEAR(learning_rate_factor(**loop.lr_schedule,
                                     point[0].get<int64_t>(), kSteps),
                point[1].get<double>(), 2e-8)
        << "in step " << point[0];
  }
}

TEST(JudgedConfigs, MatchTheirPrograms) {
  ASSERT_GE(Cases().size(), size_t{50});
  for (const Json& item : Cases()) {
    const std::string program = item["program"];
    SCOPED_TRACE(absl::StrCat(program, " ", item["name"].get<std::string>()));
    const ReadConfig read =
        read_config_text(program == "prime-rl" ? "run.toml" : "run.yaml",
                         item["text"].get<std::string>());
    ASSERT_TRUE(read.dialect.has_value());
    EXPECT_EQ(dialect_name(*read.dialect), program);
    const int64_t ranks = item["ranks"];
    const absl::StatusOr<MeshPlan> plan =
        plan_mesh(read.config.mesh, ranks, ranks);
    // A file that gives a rank count is only for that count.
    const int64_t written_for = *read.config.mesh.num_processes;
    const bool fits = written_for == 0 || written_for == ranks;
    if (!item.contains("expected")) {
      EXPECT_TRUE(read.findings.has_problems() || !plan.ok() || !fits);
      continue;
    }
    EXPECT_EQ(Problems(read.findings), std::vector<std::string>());
    ASSERT_TRUE(plan.ok() && fits) << plan.status();
    ExpectMesh(item["expected"], *plan);
    ExpectSharding(item["expected"], read.config);
    ExpectLoop(item["expected"], read.config.loop);
  }
}

TEST(JudgedConfigs, CoverEveryProgramWithDataclasses) {
  std::set<std::string> programs;
  for (const Json& item : Cases()) programs.insert(item["program"]);
  EXPECT_EQ(programs, (std::set<std::string>{"automodel", "llama-factory",
                                             "prime-rl", "torchtune", "verl"}));
}

}  // namespace
}  // namespace fsdp::config
