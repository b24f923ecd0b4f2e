// SPDX-License-Identifier: Apache-2.0

#include "config/dialects/torchtitan/parallelism.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "config/dialects/torchtitan/torchtitan.h"
#include "config/model/train_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Reading ReadParallelism(absl::string_view text) {
  return ReadWith(&ReadTorchTitan, "run.toml", Syntax::kToml, text);
}

// As the repository's llama3_405b.toml, with more parallelisms.
TEST(TorchTitan, ReadsAllParallelisms) {
  const Reading reading = ReadParallelism(R"(
[job]
dump_folder = "./outputs"
[optimizer]
name = "AdamW"
lr = 8e-5
[lr_scheduler]
warmup_steps = 600
[training]
local_batch_size = 2
seq_len = 8192
steps = 3000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
disable_loss_parallel = true
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
context_parallel_degree = 4
context_parallel_rotate_method = "alltoall"
expert_parallel_degree = 16
expert_tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
)");
  EXPECT_THAT(
      reading.findings,
      UnorderedElementsAre(AllOf(StartsWith("ignored run.toml:17: "),
                                 HasSubstr("enable_async_tensor_parallel")),
                           AllOf(StartsWith("ignored run.toml:18: "),
                                 HasSubstr("disable_loss_parallel"),
                                 HasSubstr("the plan decides"))));
  const MeshConfig& mesh = reading.config.mesh;
  EXPECT_EQ(*mesh.tensor_parallel_degree, 8);
  EXPECT_EQ(*mesh.pipeline_parallel_degree, 2);
  EXPECT_EQ(*mesh.context_parallel_degree, 4);
  EXPECT_EQ(*mesh.context_parallel_method, "alltoall");
  EXPECT_EQ(*mesh.expert_parallel_degree, 16);
  EXPECT_EQ(*mesh.expert_tensor_parallel_degree, 8);
  EXPECT_EQ(mesh.context_parallel_degree.place()->line, 21);
}

// Newer versions have keys for details in schedules and FSDP.
TEST(TorchTitan, ParallelismDetailsHaveNoFinding) {
  EXPECT_THAT(ReadParallelism(R"(
[parallelism]
fsdp_defer_gradient_reduction = true
fsdp_symm_mem_scope = "dense"
enable_sequence_parallel = true
num_pp_microbatches = 4
pipeline_parallel_module_fqns_per_model_part = [["tok_embeddings"], ["output"]]
pipeline_parallel_max_outstanding_sends = 2
pp_max_unsharded_active_stages = 1
pp_num_unshard_lookahead_factor = "auto"
save_parallelism_file = "meshes.json"
)")
                  .findings,
              IsEmpty());
}

TEST(TorchTitan, RefusesDegreesBelowOne) {
  for (const char* key : {"tensor_parallel_degree", "pipeline_parallel_degree",
                          "context_parallel_degree", "expert_parallel_degree",
                          "expert_tensor_parallel_degree"}) {
    EXPECT_THAT(
        ReadParallelism(absl::StrCat("[parallelism]\n", key, " = 0")).findings,
        ElementsAre(AllOf(StartsWith("problem run.toml:2: "), HasSubstr(key))));
  }
}

// Versions before 0.1 have these sections.
TEST(TorchTitan, ReadsDegreesInOlderSections) {
  const Reading reading = ReadParallelism(R"(
[training]
batch_size = 4
seq_len = 8192
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
compile = false
[experimental]
context_parallel_degree = 1
pipeline_parallel_degree = 1
enable_async_tensor_parallel = false
[checkpoint]
enable_checkpoint = true
interval_type = "steps"
model_weights_only = true
)");
  EXPECT_THAT(reading.findings, IsEmpty());
  EXPECT_EQ(*reading.config.mesh.data_parallel_replicate_degree, 2);
  EXPECT_EQ(*reading.config.mesh.data_parallel_shard_degree, kShardOverRest);
  EXPECT_EQ(*reading.config.mesh.tensor_parallel_degree, 8);
  EXPECT_EQ(*reading.config.loop.local_batch_size, 4);
  EXPECT_TRUE(*reading.config.checkpoint.last_save_model_only);
  const Reading first =
      ReadParallelism("[training]\ndata_parallel_degree = 4\n");
  EXPECT_THAT(first.findings, IsEmpty());
  EXPECT_EQ(*first.config.mesh.data_parallel_shard_degree, 4);
}

// TorchTitan's get_fsdp_reshard_after_forward_policy.
TEST(TorchTitan, PipelinesKeepParametersByDefault) {
  const auto reshard_with = [](absl::string_view text) {
    return *ReadParallelism(absl::StrCat("[parallelism]\n", text))
                .config.sharding.reshard_after_forward;
  };
  const std::string stages = "pipeline_parallel_degree = 2\n";
  EXPECT_EQ(reshard_with(stages), ReshardSetting(false));
  EXPECT_EQ(reshard_with(stages + "fsdp_reshard_after_forward = 'default'\n"),
            ReshardSetting(false));
  EXPECT_EQ(reshard_with(stages + "fsdp_reshard_after_forward = 'always'\n"),
            ReshardSetting(true));
  EXPECT_EQ(reshard_with("pipeline_parallel_degree = 1\n"), ReshardSetting());
  EXPECT_EQ(*ReadParallelism("[experimental]\npipeline_parallel_degree = 2\n")
                 .config.sharding.reshard_after_forward,
            ReshardSetting(false));
}

TEST(TorchTitan, ReadsOtherDegreesInOlderSections) {
  const Reading reading = ReadParallelism(R"(
[training]
tensor_parallel_degree = 2
enable_float8_linear = true
[experimental]
context_parallel_degree = 4
pipeline_parallel_degree = 2
)");
  EXPECT_THAT(reading.findings,
              ElementsAre(HasSubstr("training.enable_float8_linear")));
  EXPECT_EQ(*reading.config.mesh.context_parallel_degree, 4);
  EXPECT_EQ(*reading.config.mesh.pipeline_parallel_degree, 2);
  EXPECT_THAT(ReadParallelism("[training]\ntensor_parallel_degree = 8\n"
                              "[parallelism]\ntensor_parallel_degree = 2\n")
                  .findings,
              ElementsAre(HasSubstr("training.tensor_parallel_degree is "
                                    "also given in [parallelism]")));
}

}  // namespace
}  // namespace fsdp::config
