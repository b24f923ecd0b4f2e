// SPDX-License-Identifier: Apache-2.0
// Loads of models in another program's names: a Hugging Face Llama into a
// module with TorchTitan's names, on two ranks, in place, from files and from a
// daemon.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/maps/builtin_mappings.h"
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
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/fsdp/checkpoint/named_module.h"
#include "tests/fsdp/checkpoint/test_daemon.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::ArrayTensor;
using ::dcp::testing::Disk;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::kPairRules;
using ::dcp::testing::LinesOf;
using ::dcp::testing::MappedPair;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::MakeNamedModule;
using ::fsdp::testing::NamedTensor;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::TestDaemon;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// [map]
// A Llama as transformers saves it, into a module with TorchTitan's names.
absl::Status LoadLlama(torch::nn::Module& model, const std::string& folder) {
  DCP_ASSIGN_OR_RETURN(fsdp::StateDict state,
                       fsdp::get_model_state_dict(model));
  fsdp::TorchLoadOptions options;
  options.map =
      dcp::MapRequest{.family = "llama", .from = "hf", .to = "torchtitan"};
  return fsdp::load(state, folder, options);
}
// [/map]

// The tensor in a golden file's line: "NAME F32 [2,3] DIGEST".
NamedTensor ParseTensorLine(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  NamedTensor tensor{.name = words[0], .shape = {}};
  const absl::string_view sizes(words[2]);
  for (const absl::string_view text : absl::StrSplit(
           sizes.substr(1, sizes.size() - 2), ',', absl::SkipEmpty())) {
    int64_t size = 0;
    EXPECT_TRUE(absl::SimpleAtoi(text, &size)) << line;
    tensor.shape.push_back(size);
  }
  return tensor;
}

std::vector<NamedTensor> ReadTensorLines(const std::string& file) {
  std::vector<NamedTensor> tensors;
  for (const std::string& line : GoldenLines("llama", file)) {
    tensors.push_back(ParseTensorLine(line));
  }
  return tensors;
}

// Makes `folder` a copy of the model's folder on the Hub.
void CopyHubFolder(const std::string& folder) {
  for (const auto& [from, to] :
       {std::pair("hf.safetensors", "model.safetensors"),
        std::pair("config.json", "config.json")}) {
    std::filesystem::copy_file(GoldenPath("llama", from),
                               std::filesystem::path(folder) / to);
  }
}

// The module's whole tensors, as lines of golden files.
std::vector<std::string> StateLines(const StateDict& state) {
  std::vector<ArrayTensor> arrays;
  for (const auto& [name, value] : state) {
    const auto* const sharded = value.get_if<DTensor>();
    EXPECT_NE(sharded, nullptr) << name;
    if (sharded == nullptr) continue;
    const at::Tensor whole = sharded->full_tensor().contiguous();
    arrays.push_back(
        {.tensor = {.name = name,
                    .dtype = dcp::DType::kFloat32,
                    .shape = {whole.sizes().begin(), whole.sizes().end()}},
         .bytes = std::string(static_cast<const char*>(whole.const_data_ptr()),
                              whole.nbytes())});
  }
  std::sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) {
    return a.tensor.name < b.tensor.name;
  });
  return LinesOf(arrays);
}

std::shared_ptr<torch::nn::Module> ShardedLlama() {
  const auto module = MakeNamedModule(ReadTensorLines("torchtitan"));
  fully_shard(module, {.mesh = init_device_mesh("cpu", {get_world_size()})});
  return module;
}

DTensor Sharded(const std::vector<int64_t>& shape, const DeviceMesh& mesh) {
  const at::Tensor whole = at::zeros(shape);
  return distribute_tensor(
      whole, mesh,
      {shape.empty() ? Placement(Replicate()) : Placement(Shard(0))});
}

TorchLoadOptions PairOptions() {
  TorchLoadOptions options;
  options.map = dcp::MapRequest{
      .rules = std::string(kPairRules), .from = "theirs", .to = "ours"};
  return options;
}

TEST(MapLoad, AHubFolderFillsAShardedModuleInPlace) {
  const TempDir dir;
  const std::string folder = dir.path();
  CopyHubFolder(folder);
  RunRanks(2, [&] {
    init_process_group();
    const auto module = ShardedLlama();
    ASSERT_OK_AND_ASSIGN(const StateDict state, get_model_state_dict(*module));
    ASSERT_OK(LoadLlama(*module, folder));
    // `state` was taken before, and has the same memory.
    EXPECT_THAT(StateLines(state),
                ElementsAreArray(GoldenLines("llama", "torchtitan")));
  });
}

TEST(MapLoad, LoadsThroughRank0AndBelowAPrefix) {
  const TempDir dir;
  const std::string folder = dir.path();
  CopyHubFolder(folder);
  RunRanks(2, [&] {
    init_process_group();
    const auto module = ShardedLlama();
    ASSERT_OK_AND_ASSIGN(const StateDict model, get_model_state_dict(*module));
    StateDict state{{"app", StateDict{{"model", model}}}};
    TorchLoadOptions options;
    options.map = dcp::MapRequest{.family = "llama",
                                  .from = "hf",
                                  .to = "torchtitan",
                                  .model_to = "app.model."};
    ASSERT_OK(load_from_rank0(state, folder, options));
    EXPECT_THAT(StateLines(model),
                ElementsAreArray(GoldenLines("llama", "torchtitan")));
  });
}

// TorchTitan's optimizer has one state for queries, keys and values.
TEST(MapLoad, LoadsOptimizerStates) {
  RunRanks(2, [&] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const std::string begins = "optimizer.state.";
    StateDict states;
    StateDict lines;
    for (const NamedTensor& tensor : ReadTensorLines("torchtitan_optim")) {
      const DTensor sharded = Sharded(tensor.shape, mesh);
      states[tensor.name.substr(begins.size())] = sharded;
      lines[tensor.name] = sharded;
    }
    StateDict state{
        {"app", StateDict{{"optim", StateDict{{"state", states}}}}}};
    TorchLoadOptions options;
    options.map = dcp::MapRequest{.family = "llama",
                                  .from = "hf",
                                  .to = "torchtitan",
                                  .states_to = "app.optim.state."};
    ASSERT_OK(
        load(state, GoldenPath("llama", "hf_optim.safetensors"), options));
    EXPECT_THAT(StateLines(lines),
                ElementsAreArray(GoldenLines("llama", "torchtitan_optim")));
  });
}

// Wherever the tensors differ, some rank finds it, and all return it.
TEST(MapLoad, AnErrorIsReturnedOnAllRanksAndLeavesTheTensors) {
  const TempDir dir;
  for (const int64_t torn : {0, 119}) {
    MappedPair pair;
    pair.TearHead(torn);
    pair.Save(Disk(), dir.Join(absl::StrCat("torn", torn)));
  }
  MappedPair().Save(Disk(), dir.Join("whole"));
  RunRanks(2, [&] {
    init_process_group();
    const at::Tensor table = at::full({40, 3}, 2.5);
    const auto expect = [&](StateDict state, const std::string& source,
                            absl::StatusCode code, const auto& says) {
      EXPECT_THAT(load(state, source, PairOptions()), StatusIs(code, says));
      EXPECT_THAT(load_from_rank0(state, source, PairOptions()),
                  StatusIs(code, says));
      EXPECT_EQ(table.min().item<double>(), 2.5);
      EXPECT_EQ(table.max().item<double>(), 2.5);
    };
    for (const char* torn : {"torn0", "torn119"}) {
      expect({{"table", table}}, dir.Join(torn),
             absl::StatusCode::kFailedPrecondition,
             AllOf(HasSubstr("head"), HasSubstr("emb")));
    }
    expect({{"table", table}, {"model.turned", at::zeros({9, 30})}},
           dir.Join("whole"), absl::StatusCode::kNotFound,
           HasSubstr("lacks model.turned; pair, from theirs to ours, makes "
                     "fused, table, turned"));
    expect({{"table", table}, {"fused", at::zeros({12, 5})}}, dir.Join("whole"),
           absl::StatusCode::kInvalidArgument,
           AllOf(HasSubstr("requested as [12, 5]"),
                 HasSubstr("(made of x.q, x.k)")));
    // A model that the rules do not fit.
    expect({{"table", table}}, GoldenPath("llama", "hf.safetensors"),
           absl::StatusCode::kDataLoss, HasSubstr("x.q"));
  });
}

// The daemon finds config.json next to the model, and the ranks have no copy.
TEST(MapLoad, AHubFolderOnADaemonFillsAShardedModule) {
  const TestDaemon daemon;
  if (daemon.is_here()) CopyHubFolder(daemon.Path(""));
  RunRanks(
      2,
      [&] {
        init_process_group();
        for (const bool from_rank0 : {false, true}) {
          const auto module = ShardedLlama();
          ASSERT_OK_AND_ASSIGN(const StateDict model,
                               get_model_state_dict(*module));
          StateDict state{{"app", StateDict{{"model", model}}}};
          TorchLoadOptions options;
          options.map = dcp::MapRequest{.family = "llama",
                                        .from = "hf",
                                        .to = "torchtitan",
                                        .model_to = "app.model."};
          dcp::TransferStats stats;
          options.stats = &stats;
          const std::string url = daemon.Url("model.safetensors");
          ASSERT_OK(from_rank0 ? load_from_rank0(state, url, options)
                               : load(state, url, options));
          EXPECT_THAT(StateLines(model),
                      ElementsAreArray(GoldenLines("llama", "torchtitan")));
          if (from_rank0) continue;
          uint64_t held_bytes = 0;
          for (const auto& [name, value] : model) {
            held_bytes += value.get_if<DTensor>()->to_local().nbytes();
          }
          EXPECT_EQ(stats.bytes_read, held_bytes);
        }
      },
      daemon.ForRanks());
}

// The rules and config.json are the job's files, not the daemon's.
TEST(MapLoad, ADaemonUsesTheJobsRulesAndConfig) {
  const TempDir dir;
  const TestDaemon daemon;
  const std::string path = daemon.Path("model.safetensors");
  std::filesystem::copy_file(GoldenPath("llama", "hf.safetensors"), path);
  ASSERT_OK_AND_ASSIGN(const absl::string_view rules,
                       dcp::BuiltinMappingText("llama"));
  const std::string name = "layers.0.attention.qkv_linear.wq.weight";
  const std::vector<NamedTensor> tensors = ReadTensorLines("torchtitan");
  const auto queries = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const NamedTensor& tensor) { return tensor.name == name; });
  ASSERT_NE(queries, tensors.end());
  const at::Tensor sent = at::zeros(queries->shape);
  const at::Tensor read = at::zeros(queries->shape);
  TorchLoadOptions options;
  options.map = dcp::MapRequest{.rule_file = dir.WriteFile("mine.yaml", rules),
                                .from = "hf",
                                .to = "torchtitan"};
  StateDict state{{name, sent}};
  EXPECT_THAT(load(state, daemon.Url("model.safetensors"), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("mine.yaml:"),
                             HasSubstr("is in neither config.json"))));
  options.map->config_file = GoldenPath("llama", "config.json");
  ASSERT_OK(load(state, daemon.Url("model.safetensors"), options));
  StateDict here{{name, read}};
  ASSERT_OK(load(here, path, options));
  EXPECT_TRUE(at::equal(sent, read));
  EXPECT_GT(sent.abs().max().item<double>(), 0);
}

// The same errors as from files, on all ranks, and no tensor changes.
TEST(MapLoad, ADaemonReportsTheSameErrorsAsFiles) {
  const TestDaemon daemon;
  if (daemon.is_here()) {
    MappedPair torn;
    torn.TearHead(119);
    torn.Save(Disk(), daemon.Path("torn"));
    MappedPair().Save(Disk(), daemon.Path("whole"));
    std::filesystem::copy_file(GoldenPath("llama", "hf.safetensors"),
                               daemon.Path("llama.safetensors"));
  }
  RunRanks(
      2,
      [&] {
        init_process_group();
        const at::Tensor table = at::full({40, 3}, 2.5);
        const auto expect = [&](StateDict state, const std::string& name,
                                absl::StatusCode code, const auto& says) {
          const std::string url = daemon.Url(name);
          for (const absl::Status& status :
               {load(state, url, PairOptions()),
                load_from_rank0(state, url, PairOptions())}) {
            EXPECT_THAT(status, StatusIs(code, AllOf(HasSubstr(url), says)));
          }
          EXPECT_EQ(table.min().item<double>(), 2.5);
          EXPECT_EQ(table.max().item<double>(), 2.5);
        };
        expect({{"table", table}}, "torn",
               absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("head"), HasSubstr("emb")));
        expect({{"table", table}, {"model.turned", at::zeros({9, 30})}},
               "whole", absl::StatusCode::kNotFound,
               HasSubstr("lacks model.turned; pair, from theirs to ours, makes "
                         "fused, table, turned"));
        expect({{"table", table}, {"fused", at::zeros({12, 5})}}, "whole",
               absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("requested as [12, 5]"),
                     HasSubstr("(made of x.q, x.k)")));
        // The error names the line of the rule that the model does not fit.
        expect({{"table", table}}, "llama.safetensors",
               absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("rules:9: "), HasSubstr("x.q")));
        StateDict state{{"table", table}};
        EXPECT_OK(load(state, daemon.Url("whole"), PairOptions()));
        EXPECT_NE(table.max().item<double>(), 2.5);
      },
      daemon.ForRanks());
}

}  // namespace
}  // namespace fsdp
