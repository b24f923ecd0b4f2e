// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/export.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A sharded tensor under "net.0", a name that could be taken for a pattern, and
// another tensor.
std::string SaveSharded() {
  const DeviceMesh mesh =
      init_device_mesh(c10::kCPU, {get_world_size()}, {"shard"});
  const std::string path = SharedDir() + "/step-1";
  const DTensor weight = distribute_tensor(
      at::arange(15, at::kFloat).view({5, 3}), mesh, {Shard(0)});
  EXPECT_OK(
      save({{"net.0", StateDict{{"w.a", weight}}}, {"net10.w", 7}}, path));
  return path;
}

TEST(Export, WritesWholeTensorsBelowAPrefix) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SaveSharded();
    for (const char* name : {"m.safetensors", "m.pt", "m"}) {
      SCOPED_TRACE(name);
      const std::string file = absl::StrCat(SharedDir(), "/", name);
      ASSERT_OK(export_full(path, file, {.prefix = "net.0"}));
      // A second export replaces the first.
      ASSERT_OK(export_full(path, file, {.prefix = "net.0"}));
      StateDict state = {{"w.a", at::zeros({5, 3})}};
      ASSERT_OK(load(state, file));
      EXPECT_TRUE(state.find("w.a")->get_if<at::Tensor>()->equal(
          at::arange(15, at::kFloat).view({5, 3})));
      state["net10.w"] = 0;
      EXPECT_THAT(load(state, file),
                  StatusIs(absl::StatusCode::kNotFound, HasSubstr("net10.w")));
    }
    StateDict all = {{"net.0.w.a", at::zeros({5, 3})}, {"net10.w", 0}};
    ASSERT_OK(export_full(path, SharedDir() + "/all.pt"));
    ASSERT_OK(load(all, SharedDir() + "/all.pt"));
    EXPECT_EQ(*all.find("net10.w")->get_if<int64_t>(), 7);
  });
}

TEST(Export, CastsFloatingTensors) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SaveSharded();
    const std::string file = SharedDir() + "/half.safetensors";
    ASSERT_OK(export_full(path, file,
                          {.prefix = "net.0", .dtype = dcp::DType::kBFloat16}));
    StateDict state = {{"w.a", at::zeros({5, 3}, at::kBFloat16)}};
    ASSERT_OK(load(state, file));
    EXPECT_TRUE(state.find("w.a")->get_if<at::Tensor>()->equal(
        at::arange(15, at::kBFloat16).view({5, 3})));
    std::ifstream bytes(file);
    const std::string text((std::istreambuf_iterator<char>(bytes)),
                           std::istreambuf_iterator<char>());
    EXPECT_THAT(text, HasSubstr("BF16"));
  });
}

TEST(Export, FailsOnAllRanks) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SaveSharded();
    const std::string file = SharedDir() + "/m.pt";
    EXPECT_THAT(export_full(path, file, {.prefix = "model"}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("export to "), HasSubstr("model.*"))));
    EXPECT_THAT(export_full(path, file, {.prefix = "net*"}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("prefix 'net*' may contain only letters")));
    EXPECT_THAT(export_full(path, SharedDir() + "/none/m.pt"),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
    EXPECT_OK(export_full(path, file, {.overwrite = false}));
    EXPECT_THAT(export_full(path, file, {.overwrite = false}),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("m.pt")));
  });
}

}  // namespace
}  // namespace fsdp
