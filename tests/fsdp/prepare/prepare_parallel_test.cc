// SPDX-License-Identifier: Apache-2.0
// Trains models over several axes, from configs for programs with such axes, in
// the same steps as in one process.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "config/read_config.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/prepare/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/parallel/llama.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "torch/nn.h"
#include "torch/types.h"

namespace fsdp::testing {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainConfig ParseConfig(absl::string_view text) {
  const ReadConfig read = read_config_text("run.yaml", text);
  EXPECT_OK(read.findings.ToStatus());
  return read.config;
}

// The first of this rank's two rows in a batch with four.
int64_t FirstRow(const Prepared& training) {
  return 2 * training.dims->get_mesh("batch").get_local_rank();
}

TEST(PrepareParallel, CutsLayersByAConfigsPlan) {
  RunRanks(4, [] {
    StartRankInDouble();
    const TrainConfig config = ParseConfig(R"(
precision: fp32
parallelism_config:
  fsdp2:
    activation_checkpointing: true
    reshard_after_forward: true
  tp:
    tensor_parallel_degree: 2
    layer_plan:
      embed_tokens: {style: embedding_rowwise, output_layouts: shard(1)}
      layers.*.self_attn.[qkv]_proj: colwise
      layers.*.self_attn.o_proj: {style: rowwise, output_layouts: shard(1)}
      layers.*.mlp.{gate,up}_proj: colwise
      layers.*.mlp.down_proj: {style: rowwise, output_layouts: shard(1)}
      layers.*.*_layernorm: sequence_parallel
      norm: sequence_parallel
      lm_head: colwise
)");
    llama::Llama model = MakeLlama();
    const absl::StatusOr<Prepared> training =
        prepare(model, config, {.layers = {"BlockImpl"}, .device = "cpu"});
    ASSERT_OK(training.status());
    EXPECT_THAT(training->mesh.mesh_dim_names(), ElementsAre("fsdp"));
    const auto up =
        dtensor_of(model->named_parameters()["layers.0.mlp.up_proj.weight"]);
    EXPECT_THAT(up->device_mesh().mesh_dim_names(), ElementsAre("fsdp", "tp"));
    EXPECT_THAT(up->placements(), ElementsAre(StridedShard(0, 2), Shard(0)));
    ExpectTrainsAsOne(model, MakeLlama(), FirstRow(*training), 2);
  });
}

constexpr absl::string_view kTensorParallel = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_cpu_ram_efficient_loading: true
parallelism_config:
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";

TEST(PrepareParallel, CutsRank0sWeightsByTheProgramsPlan) {
  RunRanks(4, [] {
    StartRankInDouble();
    const PrepareOptions options = {
        .type_names = {{"LlamaDecoderLayer", "BlockImpl"}},
        .parallelize_plan = TensorPlan(),
        .device = "cpu"};
    const auto train = [&](llama::Llama model) {
      const absl::StatusOr<Prepared> training =
          prepare(model, ParseConfig(kTensorParallel), options);
      ASSERT_OK(training.status());
      ExpectTrainsAsOne(model, MakeLlama(), FirstRow(*training), 2);
    };
    // Whole on every rank, but only rank 0's count.
    llama::Llama other = MakeLlama();
    if (get_rank() != 0) {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& parameter : other->parameters()) {
        parameter.fill_(get_rank());
      }
    }
    train(other);
    // Only on rank 0.
    std::optional<MetaDeviceGuard> on_meta;
    if (get_rank() != 0) on_meta.emplace();
    llama::Llama model =
        get_rank() == 0 ? MakeLlama() : llama::Llama(Options());
    on_meta.reset();
    train(model);
  });
}

TEST(PrepareParallel, ShardsOverRanksThatShareSequences) {
  RunRanks(4, [] {
    StartRankInDouble();
    const TrainConfig config = ParseConfig(R"(
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
parallelism_config:
  parallelism_config_dp_shard_size: 2
  parallelism_config_cp_size: 2
  parallelism_config_cp_comm_strategy: alltoall
)");
    llama::Llama model = MakeLlama();
    const absl::StatusOr<Prepared> training =
        prepare(model, config, {.device = "cpu"});
    ASSERT_OK(training.status());
    EXPECT_THAT(training->mesh.shape(), ElementsAre(4));
    const DeviceMesh cp = training->dims->get_mesh("cp");
    EXPECT_EQ(training->context_parallel.method, "alltoall");
    ExpectTrainsAsOne(
        model, MakeLlama(), FirstRow(*training), 2,
        /*seq_len=*/8, [&](torch::Tensor& inputs, torch::Tensor& targets) {
          context_parallel(cp, {&inputs, &targets}, training->context_parallel);
        });
  });
}

TEST(PrepareParallel, NamesThePlanThatDoesNotFit) {
  RunRanks(2, [] {
    StartRankInDouble();
    const TrainConfig config = ParseConfig(
        "precision: fp32\n"
        "parallelism_config:\n"
        "  fsdp2: {activation_checkpointing: false}\n"
        "  tp:\n"
        "    tensor_parallel_degree: 2\n"
        "    layer_plan: {norm: colwise}\n");
    llama::Llama model = MakeLlama();
    EXPECT_THAT(prepare(model, config, {.device = "cpu"}).status(),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("run.yaml:6: "
                                         "parallelism_config.tp.layer_plan"),
                               HasSubstr("'norm'"))));
    EXPECT_FALSE(dtensor_of(model->parameters()[0]).has_value());
    EXPECT_THAT(prepare(model, config,
                        {.parallelize_plan = {{"norm", RowwiseParallel()}},
                         .device = "cpu"})
                    .status(),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("PrepareOptions::parallelize_plan")));
  });
}

}  // namespace
}  // namespace fsdp::testing
