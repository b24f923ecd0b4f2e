// SPDX-License-Identifier: Apache-2.0

#include "fsdp/engine/extension_inputs.h"

#include <string>
#include <vector>

#include "ATen/ops/tensor.h"
#include "fsdp/extensions/float8.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/mlp.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

TEST(ExtensionInputs, TakeOneAllReduceForAllExtensions) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    CountingBackend& counts = Count(mesh.get_group());
    std::vector<at::Tensor> maxima;
    const AllGatherExtension plain = {
        .pre_all_gather =
            [&](const at::Tensor& shard,
                const AllGatherExtension::Context& context) {
              maxima.push_back(context.maximum);
              return AllGatherExtension::Inputs{.tensors = {shard},
                                                .metadata = {}};
            },
        .post_all_gather =
            [](const std::vector<at::Tensor>& outputs,
               const std::vector<at::Tensor>& /*metadata*/,
               at::Tensor dst) { dst.copy_(outputs[0].view(dst.sizes())); }};
    AllGatherExtension of_rank = plain;
    of_rank.local_maximum = [](const at::Tensor&) {
      return at::tensor({1.0F * get_rank(), -1.0F * get_rank()});
    };
    Mlp model;
    FullyShardOptions options;
    options.mesh = mesh;
    options.all_gather_extension_fn = [&](const std::string& name,
                                          const at::Tensor&) {
      if (name == "up.weight") return of_rank;
      return name == "up.bias" ? plain : float8_all_gather();
    };
    fully_shard(model, options);
    counts.Reset();
    model->forward(BatchOf(0));
    EXPECT_EQ(counts.ToString(), "all_gather 1, all_reduce 1");
    EXPECT_EQ(counts.bytes("all_reduce"), 4 * 4);
    ASSERT_EQ(maxima.size(), 2u);
    EXPECT_TRUE(maxima[0].equal(at::tensor({1.0F, 0.0F})));
    EXPECT_FALSE(maxima[1].defined());
  });
}

TEST(ExtensionInputs, RefuseAMaximumThatIsNotARow) {
  RunRanks(1, [] {
    init_process_group();
    AllGatherExtension wrong = float8_all_gather();
    wrong.local_maximum = [](const at::Tensor& shard) { return shard.max(); };
    Mlp model;
    FullyShardOptions options;
    options.mesh = init_device_mesh("cpu", {1});
    options.all_gather_extension_fn = [&](const std::string&,
                                          const at::Tensor&) { return wrong; };
    fully_shard(model, options);
    EXPECT_THAT(ThrownMessage([&] { model->forward(BatchOf(0)); }),
                HasSubstr("'up.weight' gave a maximum"));
  });
}

}  // namespace
}  // namespace fsdp::testing
