// SPDX-License-Identifier: Apache-2.0
// Training jobs with several processes and checkpoints in a real object store.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/destination/step_directories.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/layouts.h"
#include "tests/testing/object_server.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::ObjectServer;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::fsdp::testing::ExpectEqual;
using ::fsdp::testing::Layout;
using ::fsdp::testing::MakeMesh;
using ::fsdp::testing::MakeState;
using ::fsdp::testing::Placed;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::Whole;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

std::string InBucket(absl::string_view name) {
  return absl::StrCat("s3://", ObjectServer::kBucket, "/", name);
}

class Store : public ::testing::Test {
 protected:
  // The ranks inherit this program's environment.
  static void SetUpTestSuite() {
    if (std::getenv("RANK") == nullptr) ObjectServer::Get();
  }
};

// The state from layouts.h, and a tensor so large that each of three ranks
// uploads more than one part.
StateDict LargeState(const Layout& layout, bool filled) {
  const DeviceMesh mesh = MakeMesh(layout);
  StateDict state = MakeState(layout, mesh, filled);
  state["large"] = Placed(at::full({2560, 3072}, filled ? 7.0 : 0.0), mesh,
                          layout.placements);
  return state;
}

void ExpectLoads(const Layout& layout, const std::string& path,
                 bool from_rank0) {
  SCOPED_TRACE(absl::StrCat(path, from_rank0 ? " from rank 0" : ""));
  StateDict state = LargeState(layout, /*filled=*/false);
  const TorchLoadOptions options{.verify = true};
  ASSERT_OK(from_rank0 ? load_from_rank0(state, path, options)
                       : load(state, path, options));
  ExpectEqual(StateValue(state), StateValue(LargeState(layout, true)), "");
}

TEST_F(Store, ThreeRanksSaveAndTwoLoad) {
  const std::string step = InBucket("ranks/step");
  const std::string file = InBucket("ranks/whole.pt");
  const std::string exported = InBucket("ranks/model.safetensors");
  RunRanks(3, [&] {
    init_process_group();
    const Layout layout{"three", {3}, {Shard(0)}};
    const StateDict state = LargeState(layout, /*filled=*/true);
    ASSERT_OK(save(state, step));
    ASSERT_OK(save(state, file));
    // The second replaces the first.
    ASSERT_OK(save(state, step));
    EXPECT_THAT(
        save(state, step, {.overwrite = false}),
        StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("overwrite")));
    ASSERT_OK(export_full(step, exported, {.prefix = "model"}));
  });
  RunRanks(2, [&] {
    init_process_group();
    const Layout layout{"two", {2}, {Shard(1)}};
    for (const std::string& path : {step, file}) {
      ExpectLoads(layout, path, /*from_rank0=*/false);
      ExpectLoads(layout, path, /*from_rank0=*/true);
    }
  });
  StateDict model{{"a.weight", at::zeros({7, 5})}};
  ASSERT_OK(load(model, exported));
  EXPECT_TRUE(
      at::equal(*model.find("a.weight")->get_if<at::Tensor>(), Whole(1)));
  // No file is left that no index names.
  const auto fs = dcp::NewDefaultFileSystem();
  const auto litter = dcp::FindLitter(*fs, InBucket("ranks"), INT64_MAX, {});
  ASSERT_OK(litter.status());
  EXPECT_TRUE(litter->uploads.empty());
  EXPECT_TRUE(litter->files.empty());
}

StateDict StateAt(int64_t step) {
  return {{"step", step}, {"a", at::full({100}, static_cast<double>(step))}};
}

TEST_F(Store, StepsAreKeptRemovedAndResumed) {
  const std::string run = InBucket("deep/run");
  RunRanks(3, [&] {
    init_process_group();
    CheckpointManager manager(run, {.save_every = 2,
                                    .keep_last = 2,
                                    .keep_every = 6,
                                    .log = [](auto&) {}});
    EXPECT_THAT(manager.latest(), IsOkAndHolds(std::nullopt));
    for (int64_t step = 1; step <= 12; ++step) {
      EXPECT_OK(manager.before_optimizer_step());
      ASSERT_OK_AND_ASSIGN(const bool due, manager.should_save(step));
      if (due) EXPECT_OK(manager.save(step, StateAt(step)));
    }
    EXPECT_OK(manager.finish());
  });
  const auto fs = dcp::NewDefaultFileSystem();
  EXPECT_THAT(dcp::ListSteps(*fs, run), IsOkAndHolds(ElementsAre(6, 10, 12)));
  // As if the ranks had been killed before the last put.
  const std::string torn = dcp::StepPath(run, 12);
  EXPECT_OK(fs->Remove(dcp::JoinPath(torn, ".metadata")));
  RunRanks(2, [&] {
    init_process_group();
    std::vector<std::string> told;
    const auto log = [&](const std::string& text) { told.push_back(text); };
    CheckpointManager manager(run, {.keep_last = 1, .log = log});
    StateDict state = StateAt(0);
    ASSERT_THAT(manager.resume(state), IsOkAndHolds(Optional(10)));
    EXPECT_EQ(*state.find("step")->get_if<int64_t>(), 10);
    EXPECT_EQ(state.find("a")->get_if<at::Tensor>()->sum().item<double>(),
              1000);
    // The torn step is saved again, and then the others are not needed.
    ASSERT_OK(manager.save(12, StateAt(12)));
    EXPECT_OK(manager.finish());
    EXPECT_THAT(manager.latest(), IsOkAndHolds(Optional(12)));
    if (get_rank() != 0) return;
    EXPECT_THAT(told,
                ElementsAre(AllOf(HasSubstr(torn), HasSubstr("no .metadata")),
                            absl::StrCat("removed ", dcp::StepPath(run, 6)),
                            absl::StrCat("removed ", dcp::StepPath(run, 10))));
  });
  EXPECT_THAT(dcp::ListSteps(*fs, run), IsOkAndHolds(ElementsAre(12)));
}

TEST_F(Store, StoreErrorIsReportedOnAllRanks) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path =
        absl::StrCat("s3://", ObjectServer::kBucketOfStranger, "/run");
    const auto refused =
        StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(path));
    EXPECT_THAT(save(StateAt(1), path), refused);
    StateDict state = StateAt(0);
    EXPECT_THAT(load(state, path), refused);
    EXPECT_THAT(load_from_rank0(state, path), refused);
    CheckpointManager manager(path, {.log = [](auto&) {}});
    EXPECT_THAT(manager.resume(state), refused);
    EXPECT_THAT(load(state, InBucket("nothing")),
                StatusIs(absl::StatusCode::kNotFound));
  });
}

// Upload parts are larger than the blocks for a disk.
TEST_F(Store, OneSaverSavesOnADiskAndThenInAStore) {
  const TempDir dir;
  const at::Tensor a = at::full({3 << 20}, 3.0);
  AsyncSaver saver;
  for (const std::string& path : {dir.Join("c"), InBucket("saver/c")}) {
    SCOPED_TRACE(path);
    ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save({{"a", a}}, path));
    ASSERT_OK(handle.wait());
    StateDict state{{"a", at::zeros_like(a)}};
    ASSERT_OK(load(state, path));
    EXPECT_TRUE(at::equal(*state.find("a")->get_if<at::Tensor>(), a));
  }
}

}  // namespace
}  // namespace fsdp
