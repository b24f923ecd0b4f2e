// SPDX-License-Identifier: Apache-2.0
// Saves sharded states to one file, over real processes.

#include "fsdp/checkpoint/file_save.h"

#include <filesystem>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/layouts.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::ExpectEqual;
using ::fsdp::testing::Layout;
using ::fsdp::testing::Layouts;
using ::fsdp::testing::MakeMesh;
using ::fsdp::testing::MakeState;
using ::fsdp::testing::Placed;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ListFiles(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(FileSave, SavesEveryLayout) {
  for (int world = 1; world <= 4; ++world) {
    RunRanks(world, [world] {
      init_process_group();
      for (const Layout& layout : Layouts()) {
        if (layout.world() != world) continue;
        SCOPED_TRACE(layout.name);
        const DeviceMesh mesh = MakeMesh(layout);
        const StateDict saved = MakeState(layout, mesh, /*filled=*/true);
        const std::string path =
            absl::StrCat(SharedDir(), "/", layout.name, ".pt");
        ASSERT_OK(save(saved, path, {.memory_bytes = 1}));
        EXPECT_TRUE(std::filesystem::is_regular_file(path));
        StateDict state = MakeState(layout, mesh, /*filled=*/false);
        ASSERT_OK(load(state, path, {.verify = true}));
        ExpectEqual(StateValue(state), StateValue(saved), "");
      }
    });
  }
}

// A tensor larger than many windows, and small tensors in another order than in
// the file.
StateDict Tensors(const DeviceMesh& mesh, const Placements& placements,
                  bool filled) {
  const auto make = [&](int64_t rows, int64_t columns, at::ScalarType type) {
    at::Tensor whole = at::zeros({rows, columns}, type);
    if (filled) {
      whole.copy_(at::arange(rows * columns, at::kFloat).view_as(whole));
    }
    return Placed(whole, mesh, placements);
  };
  return {{"bytes", make(7, 5, at::kByte)},
          {"large", make(1500, 1001, at::kFloat)},
          {"half", make(3, 9, at::kHalf)},
          {"double", make(2, 2, at::kDouble)}};
}

TEST(FileSave, SavesTensorsLargerThanAWindow) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    int number = 0;
    for (const auto& placement :
         std::vector<Placement>{Shard(0), Shard(1), Replicate()}) {
      for (const char* suffix : {".pth", ".bin", ".safetensors"}) {
        const std::string path =
            absl::StrCat(SharedDir(), "/", number++, suffix);
        SCOPED_TRACE(path);
        const StateDict saved = Tensors(mesh, {placement}, /*filled=*/true);
        ASSERT_OK(save(saved, path, {.memory_bytes = dcp::kMinMemoryBytes}));
        StateDict state = Tensors(mesh, {placement}, /*filled=*/false);
        ASSERT_OK(load(state, path));
        ExpectEqual(StateValue(state), StateValue(saved), "");
      }
    }
  });
}

TEST(FileSave, SavesTensorsThatOnlyOneRankHas) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/x.pt";
    StateDict mine = {{"both", at::ones({2})}};
    if (get_rank() == 1) {
      mine["tensor"] = at::ones({3, 4}) * 5;
      mine["note"] = std::string("of rank 1");
    }
    ASSERT_OK(save(mine, path));
    StateDict state = {
        {"both", at::zeros({2})}, {"tensor", at::zeros({3, 4})}, {"note", ""}};
    ASSERT_OK(load(state, path));
    ExpectEqual(StateValue(state),
                StateValue(StateDict{{"both", at::ones({2})},
                                     {"tensor", at::ones({3, 4}) * 5},
                                     {"note", "of rank 1"}}),
                "");
  });
}

TEST(FileSave, OneRanksErrorFailsAllAndLeavesNoFile) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const std::string folder = SharedDir() + "/d";
    std::filesystem::create_directories(folder);
    StateDict state = Tensors(mesh, {Shard(0)}, /*filled=*/true);
    EXPECT_THAT(save(state, folder + "/missing/x.pt"),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
    StateDict wrong = state;
    if (get_rank() == 1) wrong["double"] = at::ones({3});
    EXPECT_THAT(
        save(wrong, folder + "/x.pt"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("double")));
    StateDict mixed = state;
    mixed["step"] = 3;
    EXPECT_THAT(save(mixed, folder + "/x.safetensors"),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("not a tensor"), HasSubstr("step"))));
    std::stop_source stop;
    stop.request_stop();
    EXPECT_THAT(save(state, folder + "/x.pt", {.stop = stop.get_token()}),
                StatusIs(absl::StatusCode::kCancelled));
    ASSERT_OK(save(state, folder + "/y.pt"));
    world_group()->barrier()->wait();
    EXPECT_THAT(ListFiles(folder), ElementsAre("y.pt"));
    EXPECT_THAT(save(state, folder + "/y.pt", {.overwrite = false}),
                StatusIs(absl::StatusCode::kAlreadyExists));
  });
}

TEST(FileSave, WorksInOneProcessWithoutAGroup) {
  const TempDir dir;
  const StateDict saved = {{"a", StateDict{{"b", at::ones({2, 3}).t()}}},
                           {"step", 5}};
  ASSERT_OK(save(saved, dir.Join("x.pt")));
  StateDict state = {{"a", StateDict{{"b", at::zeros({3, 2})}}}, {"step", 0}};
  ASSERT_OK(load(state, dir.Join("x.pt")));
  ExpectEqual(StateValue(state), StateValue(saved), "");
}

}  // namespace
}  // namespace fsdp
