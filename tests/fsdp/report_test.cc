// SPDX-License-Identifier: Apache-2.0
// The reports on a sharded module: the tree, a step's bytes, a trace.

#include "fsdp/report.h"

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fsdp/module_snapshot.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A layer of 32 x 32 with bias, and one more parameter: each of two ranks has
// 16 x 32, 16 and 8 x 16 numbers, all multiples of 64 bytes.
struct ReportedNetImpl : torch::nn::Module {
  ReportedNetImpl() {
    layer = register_module("layer", torch::nn::Linear(32, 32));
    own = register_parameter("own", torch::ones({16, 16}));
    frozen = register_parameter("frozen", torch::ones({16}), false);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return layer(x.matmul(own.view({8, 32})));
  }
  torch::nn::Linear layer{nullptr};
  torch::Tensor own, frozen;
};
TORCH_MODULE(ReportedNet);

constexpr uint64_t kLayerBytes = (32 * 32 + 32) * 4;

ReportedNet ShardNet(const DeviceMesh& mesh) {
  torch::manual_seed(1);
  ReportedNet net;
  fully_shard(net->layer, {.mesh = mesh});
  fully_shard(net, {.mesh = mesh, .ignored_params = {net->frozen}});
  return net;
}

void Step(ReportedNet& net) {
  net->forward(torch::ones({2, 8})).sum().backward();
}

TEST(Print, ShowsGroupsPlacementsAndBytes) {
  RunRanks(2, [] {
    at::set_num_threads(1);
    init_process_group();
    const ReportedNet net = ShardNet(init_device_mesh("cpu", {2}, {"shard"}));
    std::ostringstream os;
    print(*net, os);
    const std::string text = to_string(*net);
    EXPECT_EQ(os.str(), text);
    std::vector<std::string> lines;
    std::istringstream is(text);
    for (std::string line; std::getline(is, line);) lines.push_back(line);
    ASSERT_EQ(lines.size(), 6U) << text;
    // 16 x 16 numbers, half of them here.
    EXPECT_THAT(lines[0], HasSubstr("ReportedNetImpl  [FSDP over "));
    EXPECT_THAT(lines[0], HasSubstr("keeps after forward, 512 B of 1.0 KiB]"));
    EXPECT_EQ(lines[1],
              "  own: [16, 16] Float, (Shard(dim=0),), local [8, 16]");
    EXPECT_EQ(lines[2], "  frozen: [16] Float, not sharded, frozen");
    EXPECT_THAT(lines[3], HasSubstr("  layer: torch::nn::LinearImpl  [FSDP"));
    EXPECT_THAT(lines[3],
                HasSubstr("reshards after forward, 2.1 KiB of 4.1 KiB]"));
    EXPECT_EQ(lines[4],
              "    weight: [32, 32] Float, (Shard(dim=0),), local [16, 32]");
    EXPECT_EQ(lines[5], "    bias: [32] Float, (Shard(dim=0),), local [16]");
  });
}

TEST(Print, OfPlainListedOffloadedAndEmptyModules) {
  if (!is_initialized()) init_process_group();
  torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2),
                              torch::nn::ReLU());
  EXPECT_THAT(to_string(*model), ::testing::Not(HasSubstr("FSDP")));
  EXPECT_THAT(to_string(*model),
              HasSubstr("weight: [2, 2] Float, not sharded"));
  const auto children = model->children();
  fully_shard(
      std::vector<std::shared_ptr<torch::nn::Module>>{children[0], children[1]},
      {.offload_policy = CPUOffloadPolicy{.pin_memory = false}});
  fully_shard(model);
  const std::string text = to_string(*model);
  EXPECT_THAT(text, HasSubstr("SequentialImpl  [FSDP, no parameters]"));
  EXPECT_THAT(text, HasSubstr("one group of 2 modules (0, 1), offloaded to "
                              "the CPU]"));
}

TEST(StepReport, CountsTheBytesOfAStep) {
  RunRanks(2, [] {
    at::set_num_threads(1);
    init_process_group();
    ReportedNet net = ShardNet(init_device_mesh("cpu", {2}, {"shard"}));
    const uint64_t root = 16 * 16 * 4;
    Step(net);
    StepReport report = step_report(*net);
    // Forward gathers the root and the layer. The layer is the last that
    // forward uses, so it is still there for backward, and the root stays.
    EXPECT_EQ(report.num_all_gathers, 2);
    EXPECT_EQ(report.gathered_bytes, root + kLayerBytes);
    EXPECT_EQ(report.num_reduce_scatters, 2);
    EXPECT_EQ(report.reduced_bytes, root + kLayerBytes);
    EXPECT_EQ(report.num_all_reduces, 0);
    EXPECT_EQ(report.all_reduced_bytes, 0U);
    EXPECT_EQ(report.num_prefetched, 0);
    EXPECT_EQ(report.unsharded_bytes, 0U);
    EXPECT_EQ(report.unsharded_bytes_peak, root + kLayerBytes);
    EXPECT_GE(report.gather_wait_seconds, 0);
    EXPECT_THAT(to_string(report),
                HasSubstr("2 all-gathers (5.1 KiB, 0 prefetched"));
    EXPECT_THAT(to_string(report), HasSubstr("2 reduce-scatters (5.1 KiB"));
    EXPECT_THAT(to_string(report),
                HasSubstr("unsharded now 0 B, at most 5.1 KiB"));
    Step(net);
    EXPECT_EQ(step_report(*net).gathered_bytes, 2 * (root + kLayerBytes));
    get_fsdp_module(*net->layer).unshard();
    reset_step_report(*net);
    // Earlier counts remain; any module below the root reports the same.
    report = step_report(*net->layer);
    EXPECT_EQ(report.num_all_gathers, 0);
    EXPECT_EQ(report.gathered_bytes, 0U);
    EXPECT_EQ(report.unsharded_bytes, kLayerBytes);
    EXPECT_EQ(report.unsharded_bytes_peak, kLayerBytes);
  });
}

TEST(StepReport, OfHybridAndPrefetchedGroups) {
  RunRanks(4, [] {
    at::set_num_threads(1);
    init_process_group();
    ReportedNet net =
        ShardNet(init_device_mesh("cpu", {2, 2}, {"replicate", "shard"}));
    FSDPModule root = get_fsdp_module(*net);
    root.set_modules_to_forward_prefetch({get_fsdp_module(*net->layer)});
    Step(net);
    const StepReport report = step_report(*net);
    EXPECT_EQ(report.num_all_gathers, 2);
    EXPECT_EQ(report.num_prefetched, 1);
    EXPECT_EQ(report.num_all_reduces, 2);
    // The bytes in the half that this rank has after the reduce-scatter.
    EXPECT_EQ(report.all_reduced_bytes, (16 * 16 * 4 + kLayerBytes) / 2);
  });
}

TEST(StepReport, OfOneRankMovesNothing) {
  if (!is_initialized()) init_process_group();
  ReportedNet net = ShardNet(init_device_mesh("cpu", {1}));
  Step(net);
  const StepReport report = step_report(*net);
  EXPECT_EQ(report.num_all_gathers, 0);
  EXPECT_EQ(report.gathered_bytes, 0U);
  EXPECT_EQ(report.num_reduce_scatters, 0);
  EXPECT_EQ(report.unsharded_bytes_peak, 0U);
}

TEST(StepReport, OfAModuleThatIsNotShardedIsRefused) {
  const ReportedNet net;
  const std::vector<std::string> says = {"fully_shard was not applied",
                                         "ReportedNet"};
  ExpectError<c10::ValueError>([&] { step_report(*net); }, says);
  ExpectError<c10::ValueError>([&] { reset_step_report(*net); }, says);
  ExpectError<c10::ValueError>([&] { set_tracing(*net, true); }, says);
  ExpectError<c10::ValueError>([&] { write_trace(*net, "/dev/null"); }, says);
}

TEST(Trace, IsJsonWithARowForEachKind) {
  RunRanks(2, [] {
    at::set_num_threads(1);
    init_process_group();
    ReportedNet net = ShardNet(init_device_mesh("cpu", {2}, {"shard"}));
    Step(net);  // before tracing: not in the file
    set_tracing(*net, true);
    Step(net);
    set_tracing(*net, false);
    Step(net);
    const std::string path =
        SharedDir() + "/trace." + std::to_string(get_rank());
    write_trace(*net, path);
    std::ifstream file(path);
    const nlohmann::json trace = nlohmann::json::parse(file);
    std::map<int, std::string> rows;
    std::map<std::string, std::multiset<std::string>> spans;
    for (const auto& event : trace.at("traceEvents")) {
      EXPECT_EQ(event.at("pid"), get_rank());
      const int row = event.at("tid");
      if (event.at("ph") == "M") {
        EXPECT_EQ(event.at("name"), "thread_name");
        rows[row] = event.at("args").at("name");
        continue;
      }
      EXPECT_EQ(event.at("ph"), "X");
      EXPECT_EQ(event.at("cat"), rows.at(row));
      EXPECT_GT(event.at("ts"), 0);
      EXPECT_GE(event.at("dur"), 0);
      spans[rows.at(row)].insert(event.at("name"));
    }
    EXPECT_EQ(spans.size(), 3U);
    EXPECT_THAT(spans["all-gather"], ElementsAre("layer", "root"));
    EXPECT_THAT(spans["reduce-scatter"], ElementsAre("layer", "root"));
    EXPECT_THAT(spans["wait"], ElementsAre("layer", "layer", "root", "root"));
    // Starting again forgets.
    set_tracing(*net, true);
    write_trace(*net, path);
    std::ifstream again(path);
    EXPECT_TRUE(nlohmann::json::parse(again).at("traceEvents").empty());
    ExpectError<c10::Error>(
        [&] { write_trace(*net, SharedDir() + "/missing/trace"); },
        {"cannot write the trace to", "/missing/trace"});
  });
}

}  // namespace
}  // namespace fsdp::testing
