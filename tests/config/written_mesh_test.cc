// SPDX-License-Identifier: Apache-2.0
// A mesh that is written in a dialect means the same ranks there, or the
// writer reports a problem.
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/dialect_table.h"
#include "config/explain/mesh_plan.h"
#include "config/read_config.h"
#include "config/write_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr ConfigDialect kWritten[] = {
    ConfigDialect::kAccelerate, ConfigDialect::kTransformers,
    ConfigDialect::kComposer, ConfigDialect::kTorchTitan};

absl::string_view WrittenName(ConfigDialect dialect) {
  return dialect == ConfigDialect::kTorchTitan     ? "run.toml"
         : dialect == ConfigDialect::kTransformers ? "run.json"
                                                   : "run.yaml";
}

std::string MeshText(const MeshConfig& mesh) {
  return absl::StrCat(
      "replicate ", *mesh.data_parallel_replicate_degree, ", shard ",
      *mesh.data_parallel_shard_degree, ", tp ", *mesh.tensor_parallel_degree,
      ", cp ", *mesh.context_parallel_degree, ", pp ",
      *mesh.pipeline_parallel_degree, ", ep ", *mesh.expert_parallel_degree,
      ", etp ", *mesh.expert_tensor_parallel_degree, ", ranks ",
      *mesh.num_processes);
}

// Meshes with every kind of every degree.
std::vector<MeshConfig> AllMeshes() {
  std::vector<MeshConfig> meshes;
  for (const int64_t replicate : {-1, 1, 2}) {
    for (const int64_t shard : {-2, -1, 1, 4}) {
      for (int64_t bits = 0; bits < 32; ++bits) {
        // No program cuts experts without dividing them.
        if ((bits & 0x18) == 0x10) continue;
        for (const int64_t ranks : {0, 8, 16}) {
          const auto two_if = [bits](int bit) {
            return ((bits >> bit) & 1) != 0 ? int64_t{2} : int64_t{1};
          };
          MeshConfig& mesh = meshes.emplace_back();
          mesh.data_parallel_replicate_degree = replicate;
          mesh.data_parallel_shard_degree = shard;
          mesh.tensor_parallel_degree = two_if(0);
          mesh.context_parallel_degree = two_if(1);
          mesh.pipeline_parallel_degree = two_if(2);
          mesh.expert_parallel_degree = two_if(3);
          mesh.expert_tensor_parallel_degree = two_if(4);
          mesh.num_processes = ranks;
        }
      }
    }
  }
  return meshes;
}

// Returns whether the dialect wrote it.
bool ExpectSameRanksOrProblem(const MeshConfig& mesh, ConfigDialect dialect) {
  constexpr int64_t kRanksOfMachine = 4;
  TrainConfig config;
  config.mesh = mesh;
  Findings said;
  const std::string text = write_config(config, dialect, said);
  EXPECT_EQ(text.empty(), said.has_problems());
  if (text.empty()) return false;
  const ReadConfig read = read_config_text(WrittenName(dialect), text);
  EXPECT_EQ(read.dialect, dialect) << text;
  EXPECT_THAT(TextsOf(read.findings), Each(Not(StartsWith("problem"))))
      << MeshText(mesh) << "\n"
      << text;
  for (const int64_t ranks : {1, 2, 4, 8, 16, 32, 64}) {
    if (*mesh.num_processes > 0 && ranks != *mesh.num_processes) continue;
    const absl::StatusOr<MeshPlan> plan =
        plan_mesh(mesh, ranks, kRanksOfMachine);
    if (!plan.ok()) continue;
    const absl::StatusOr<MeshPlan> again =
        plan_mesh(read.config.mesh, ranks, kRanksOfMachine);
    EXPECT_TRUE(again.ok() && *again == *plan)
        << MeshText(mesh) << " on " << ranks << " ranks, through "
        << dialect_name(dialect) << "\n"
        << text << again.status();
  }
  return true;
}

TEST(WrittenMesh, KeepsTheRanksOrReportsAProblem) {
  for (const ConfigDialect dialect : kWritten) {
    int num_written = 0;
    for (const MeshConfig& mesh : AllMeshes()) {
      num_written += ExpectSameRanksOrProblem(mesh, dialect) ? 1 : 0;
      if (HasFailure()) return;
    }
    EXPECT_GT(num_written, 5) << dialect_name(dialect);
  }
}

struct RefusedMesh {
  const char* name;
  const char* text;  // in any dialect
  ConfigDialect to;
  const char* problem;

  friend std::ostream& operator<<(std::ostream& out, const RefusedMesh& row) {
    return out << row.name;
  }
};

constexpr char kPipelines[] =
    "[parallelism]\npipeline_parallel_degree = 4\nexpert_parallel_degree = 8\n";
constexpr char kSequences[] =
    "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
    "num_processes: 8\nparallelism_config: {parallelism_config_dp_shard_size: "
    "1, parallelism_config_cp_size: 8}\n";
constexpr char kCopies[] =
    "{\"bf16\": true, \"per_device_train_batch_size\": 1}";
constexpr char kMachines[] =
    "precision: fp32\nfsdp_config: {sharding_strategy: HYBRID_SHARD}\n";
constexpr char kHybrid[] =
    "[parallelism]\ndata_parallel_replicate_degree = 2\n"
    "data_parallel_shard_degree = -1\n";

const RefusedMesh kRefused[] = {
    {"CopiesToTorchTitan", kCopies, ConfigDialect::kTorchTitan,
     "is the rest of the ranks, but TorchTitan requires a number here"},
    {"PipelinesToAccelerate", kPipelines, ConfigDialect::kAccelerate,
     "pipeline_parallel_degree is 4, but accelerate has no option"},
    {"ExpertsToAccelerate", kPipelines, ConfigDialect::kAccelerate,
     "expert_parallel_degree is 8, but accelerate has no option"},
    {"PipelinesToTransformers", kPipelines, ConfigDialect::kTransformers,
     "pipeline_parallel_degree is 4, but transformers has no option"},
    {"PipelinesToComposer", kPipelines, ConfigDialect::kComposer,
     "pipeline_parallel_degree is 4, but Composer has no option"},
    {"SequencesToComposer", kSequences, ConfigDialect::kComposer,
     "cp_size is 8, but Composer has no option"},
    {"MachinesToTorchTitan", kMachines, ConfigDialect::kTorchTitan,
     "is the ranks of one machine, which TorchTitan cannot express"},
    {"MachinesToAccelerate", kMachines, ConfigDialect::kAccelerate,
     "is the ranks of one machine, which accelerate cannot express"},
    {"MachinesToComposer", kMachines, ConfigDialect::kComposer,
     "is the ranks of one machine, which Composer cannot express"},
    {"HybridToComposer", kHybrid, ConfigDialect::kComposer,
     "data_parallel_replicate_degree is 2, but Composer has no option"},
    {"HybridToAccelerate", kHybrid, ConfigDialect::kAccelerate,
     "is the rest of the ranks, but accelerate requires a number here"},
};

class WrittenMeshRefuses : public ::testing::TestWithParam<RefusedMesh> {};

TEST_P(WrittenMeshRefuses, DegreesWithAnotherMeaning) {
  const RefusedMesh& row = GetParam();
  const bool is_toml = absl::string_view(row.text)[0] == '[';
  const ReadConfig read =
      read_config_text(is_toml ? "a.toml" : "a.yaml", row.text);
  ASSERT_FALSE(read.findings.has_problems()) << read.findings.ToStatus();
  Findings said;
  EXPECT_THAT(write_config(read.config, row.to, said), IsEmpty());
  EXPECT_THAT(TextsOf(said),
              Contains(AllOf(StartsWith("problem "), HasSubstr(row.problem))));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, WrittenMeshRefuses, ::testing::ValuesIn(kRefused),
    [](const ::testing::TestParamInfo<RefusedMesh>& instance) {
      return std::string(instance.param.name);
    });

TEST(WrittenMesh, WritesOneCopyForEachRank) {
  const ReadConfig read = read_config_text(
      "a.yaml",
      "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n");
  Findings said;
  const std::string text =
      write_config(read.config, ConfigDialect::kTorchTitan, said);
  EXPECT_THAT(text, AllOf(HasSubstr("data_parallel_replicate_degree = 4\n"),
                          HasSubstr("data_parallel_shard_degree = 1\n")));
}

// Composer trains copies unless a block says otherwise, and the Trainer looks
// only for a block named fsdp.
TEST(WrittenMesh, WritesComposersBlockOnlyForShards) {
  TrainConfig config;
  Findings said;
  EXPECT_THAT(write_config(config, ConfigDialect::kComposer, said),
              HasSubstr("parallelism_config:\n  # With FSDP_VERSION=2 in the "
                        "environment this is FSDP2.\n  fsdp:\n"));
  config.mesh.data_parallel_replicate_degree = kReplicateOverRest;
  config.mesh.data_parallel_shard_degree = int64_t{1};
  EXPECT_THAT(write_config(config, ConfigDialect::kComposer, said),
              HasSubstr("parallelism_config:\n  fsdp: null\n"));
}

}  // namespace
}  // namespace fsdp::config
