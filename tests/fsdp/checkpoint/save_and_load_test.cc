// SPDX-License-Identifier: Apache-2.0
// Saves on one mesh and loads on others, over real processes. Loaded values are
// compared with the whole tensors, which every rank makes for itself.

#include "fsdp/checkpoint/save_and_load.h"

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fsdp/checkpoint/layouts.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::IsOkAndHolds;
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
using ::fsdp::testing::Whole;
using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectLoads(const Layout& layout, const std::string& path,
                 bool from_rank0) {
  SCOPED_TRACE(absl::StrCat(path, " on ", layout.name,
                            from_rank0 ? " from rank 0" : ""));
  const DeviceMesh mesh = MakeMesh(layout);
  StateDict state = MakeState(layout, mesh, /*filled=*/false);
  ASSERT_OK(from_rank0 ? load_from_rank0(state, path) : load(state, path));
  ExpectEqual(StateValue(state), StateValue(MakeState(layout, mesh, true)), "");
}

TEST(Checkpoint, IsSavedOnEachMeshAndLoadedOnEveryOther) {
  const TempDir dir;
  // The ranks are new processes, so the parent passes them the place in a
  // variable.
  const std::string root = dir.path();
  std::vector<std::pair<std::string, std::string>> where{
      {"TESSERA_TEST_ROOT", root}};
  const auto place = [] { return std::string(getenv("TESSERA_TEST_ROOT")); };
  const auto each = [&](bool saves) {
    for (int world = 1; world <= 4; ++world) {
      RunRanks(world,
               [&] {
                 init_process_group();
                 for (const Layout& layout : Layouts()) {
                   if (layout.world() != world) continue;
                   if (saves) {
                     const DeviceMesh mesh = MakeMesh(layout);
                     EXPECT_OK(save(MakeState(layout, mesh, /*filled=*/true),
                                    absl::StrCat(place(), "/", layout.name)));
                     continue;
                   }
                   for (const Layout& saved : Layouts()) {
                     const std::string path =
                         absl::StrCat(place(), "/", saved.name);
                     ExpectLoads(layout, path, /*from_rank0=*/false);
                     ExpectLoads(layout, path, /*from_rank0=*/true);
                   }
                 }
               },
               {.deadline = std::chrono::seconds(280), .environment = where});
    }
  };
  each(/*saves=*/true);
  each(/*saves=*/false);
}

// Large enough that frames and metadata do not matter.
DTensor Large(const DeviceMesh& mesh, const Placements& placements,
              double value) {
  return Placed(at::full({1024, 1024}, value), mesh, placements);
}

TEST(Checkpoint, ReplicasReadOnceTogether) {
  RunRanks(4, [] {
    init_process_group();
    const DeviceMesh mesh =
        init_device_mesh("cpu", {2, 2}, {"replicate", "shard"});
    const Placements hsdp{Replicate(), Shard(0)};
    const Placements both{Replicate(), Replicate()};
    const std::string path = SharedDir() + "/c";
    const auto state_of = [&](double a, double b, double c) {
      return StateDict{{"a", Large(mesh, hsdp, a)},
                       {"b", Large(mesh, both, b)},
                       {"c", at::full({1024, 1024}, c)}};
    };
    ASSERT_OK(save(state_of(1, 2, 3), path));
    const auto read_by_all =
        [&](std::optional<bool> share, const std::string& path,
            uint64_t memory_bytes = dcp::kDefaultMemoryBytes) {
          StateDict state = state_of(0, 0, 0);
          dcp::TransferStats stats;
          EXPECT_OK(load(state, path,
                         {.broadcast_to_replicas = share,
                          .memory_bytes = memory_bytes,
                          .stats = &stats}));
          ExpectEqual(StateValue(state), StateValue(state_of(1, 2, 3)), "");
          at::Tensor bytes = at::full(
              {1}, static_cast<int64_t>(stats.bytes_read.load()), at::kLong);
          std::vector<at::Tensor> tensors{bytes};
          world_group()->allreduce(tensors)->wait();
          return bytes.item<int64_t>();
        };
    constexpr int64_t kOne = 4 << 20;
    EXPECT_LT(read_by_all(true, path), 3 * kOne + kOne / 4);
    // Too little to read while a window is being sent.
    EXPECT_LT(read_by_all(true, path, dcp::kMinMemoryBytes),
              3 * kOne + kOne / 4);
    EXPECT_GE(read_by_all(false, path), (2 + 4 + 4) * kOne);
    // All ranks see one page cache, which now has the files.
    for (const auto& file : std::filesystem::directory_iterator(path)) {
      std::ifstream stream(file.path(), std::ios::binary);
      stream.ignore(std::numeric_limits<std::streamsize>::max());
    }
    EXPECT_GE(read_by_all(std::nullopt, path), (2 + 4 + 4) * kOne);
    // With a separate copy each, the ranks behave as on several hosts.
    const std::string own = absl::StrCat(path, get_rank());
    std::filesystem::copy(path, own, std::filesystem::copy_options::recursive);
    EXPECT_LT(read_by_all(std::nullopt, own), 3 * kOne + kOne / 4);
  });
}

TEST(Checkpoint, RanksWithDifferentTargetsReadForThemselves) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    const int64_t rank = get_rank();
    ASSERT_OK(save({{"a", at::ones({3})}, {"b", at::ones({4}) * 2}}, path));
    // Broadcasts would confuse these orders and names.
    StateDict state =
        rank == 0 ? StateDict{{"a", at::zeros({3})}, {"b", at::zeros({4})}}
                  : StateDict{{"b", at::zeros({4})}};
    ASSERT_OK(load(state, path));
    EXPECT_TRUE(
        at::equal(*state.find("b")->get_if<at::Tensor>(), at::ones({4}) * 2));
  });
}

TEST(Checkpoint, ListsAllErrorsOnEveryRankAndChangesNothing) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    ASSERT_OK(save({{"a", at::ones({3})}, {"n", 5}}, path));
    for (const bool from_rank0 : {false, true}) {
      // Only rank 1 asks for a name that does not exist.
      StateDict state{{"a", at::zeros({3})}, {"n", 0}};
      if (get_rank() == 1) {
        state["missing.one"] = at::zeros({1});
        state["missing.two"] = 7;
      }
      EXPECT_THAT(from_rank0 ? load_from_rank0(state, path) : load(state, path),
                  StatusIs(absl::StatusCode::kNotFound,
                           HasSubstr("lacks missing.one, missing.two")));
      EXPECT_EQ(*state.find("n")->get_if<int64_t>(), 0);
      EXPECT_TRUE(
          at::equal(*state.find("a")->get_if<at::Tensor>(), at::zeros({3})));
      const TorchLoadOptions partial{.allow_partial_load = true};
      std::string log;
      dcp::SetLogSink([&](dcp::LogSeverity, absl::string_view line) {
        absl::StrAppend(&log, line, "\n");
      });
      EXPECT_OK(from_rank0 ? load_from_rank0(state, path, partial)
                           : load(state, path, partial));
      dcp::SetLogSink([](dcp::LogSeverity, absl::string_view) {});
      if (get_rank() == 1) {
        EXPECT_THAT(
            log, HasSubstr(absl::StrCat("event=partial_load rank=1 path=", path,
                                        " lacks=missing.one,missing.two\n")));
      }
      EXPECT_EQ(*state.find("n")->get_if<int64_t>(), 5);

      StateDict unfit{{"a", at::zeros({4})}, {"n", at::zeros({1})}};
      EXPECT_THAT(
          from_rank0 ? load_from_rank0(unfit, path) : load(unfit, path),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   AllOf(HasSubstr("a is stored as [3], but requested as [4]"),
                         HasSubstr("n is stored as a plain value"))));
    }
  });
}

TEST(Checkpoint, OneRanksFailureFailsAll) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    // A state that cannot be stored.
    StateDict state{{"a", at::ones({3})}};
    if (get_rank() == 1) {
      state["bad"] = at::ones({3}, at::device(at::kMeta));
    }
    EXPECT_THAT(save(state, path),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1"), HasSubstr("bad"))));
    // The next save succeeds.
    StateDict good{{"a", at::ones({3})}};
    EXPECT_OK(save(good, path));
    for (const bool from_rank0 : {false, true}) {
      EXPECT_THAT(from_rank0 ? load_from_rank0(state, path) : load(state, path),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("rank 1: bad")));
      EXPECT_OK(from_rank0 ? load_from_rank0(good, path) : load(good, path));
    }
  });
}

TEST(Checkpoint, DiskFullIsAnErrorOnAllRanksAndLeavesTheOldCheckpoint) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const auto state_of = [&](double value) {
      return StateDict{{"a", Large(mesh, {Shard(0)}, value)}};
    };
    ASSERT_OK(save(state_of(1), path));
    if (get_rank() == 1) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit tiny{.rlim_cur = 1 << 16, .rlim_max = RLIM_INFINITY};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    }
    EXPECT_THAT(save(state_of(2), path),
                AllOf(::testing::Not(::dcp::testing::IsOk()),
                      ::testing::ResultOf(
                          [](const absl::Status& s) {
                            return std::string(s.message());
                          },
                          HasSubstr("rank 1"))));
    StateDict loaded = state_of(0);
    ASSERT_OK(load(loaded, path));
    ExpectEqual(StateValue(loaded), StateValue(state_of(1)), "");
  });
}

class Counter final : public Stateful {
 public:
  absl::StatusOr<StateDict> state_dict() override {
    return StateDict{{"count", count}, {"weights", weights}};
  }
  absl::Status load_state_dict(const StateDict& state) override {
    count = *state.find("count")->get_if<int64_t>();
    return absl::OkStatus();
  }
  int64_t count = 0;
  at::Tensor weights = at::zeros({2});
};

TEST(Checkpoint, StatefulObjectsGiveAndGetTheirState) {
  const TempDir dir;
  const auto counter = std::make_shared<Counter>();
  counter->count = 9;
  counter->weights.fill_(4);
  StateDict state{{"data", counter}, {"list", StateList{1, StateList{2}}}};
  ASSERT_OK(save(state, dir.Join("c")));
  counter->count = 0;
  counter->weights.zero_();
  ASSERT_OK(load(state, dir.Join("c")));
  EXPECT_EQ(counter->count, 9);
  EXPECT_TRUE(at::equal(counter->weights, at::ones({2}) * 4));
}

// Asks all ranks, as a data loader that is spread over them would.
class Summed final : public Stateful {
 public:
  explicit Summed(int64_t size) : size_(size) {}
  absl::StatusOr<StateDict> state_dict() override {
    return StateDict{{"sum", Sum()}};
  }
  absl::Status load_state_dict(const StateDict& state) override {
    is_right = at::equal(*state.find("sum")->get_if<at::Tensor>(), Sum());
    return absl::OkStatus();
  }
  bool is_right = false;

 private:
  at::Tensor Sum() const {
    const ProcessGroup world = world_group();
    std::vector<at::Tensor> sum{
        at::full({size_}, static_cast<double>(get_rank() + size_))};
    IssueAndWait(*world, "sum", [&] { return world->allreduce(sum); });
    return sum[0];
  }

  const int64_t size_;
};

TEST(Checkpoint, StatefulObjectsMayBeInAnotherOrderOnEachRank) {
  RunRanks(2, [] {
    init_process_group();
    const auto one = std::make_shared<Summed>(1);
    const auto nine = std::make_shared<Summed>(9);
    StateDict state;
    if (get_rank() == 0) state = {{"a", one}, {"b", nine}};
    if (get_rank() == 1) state = {{"b", nine}, {"a", one}};
    const std::string path = SharedDir() + "/checkpoint";
    ASSERT_OK(save(state, path));
    ASSERT_OK(load(state, path));
    EXPECT_TRUE(one->is_right);
    EXPECT_TRUE(nine->is_right);
  });
}

TEST(Checkpoint, SavesAnyStridesAndEmptyTensors) {
  const TempDir dir;
  const at::Tensor whole = Whole(3);
  ASSERT_OK(save({{"t", whole.t()},
                  {"column", whole.select(1, 2)},
                  {"empty", at::zeros({0, 3})},
                  {"number", at::full({}, 2.5)}},
                 dir.Join("c")));
  const at::Tensor target = at::zeros({7, 10});
  StateDict state{{"t", target.narrow(1, 2, 5).t()},
                  {"column", at::zeros({7})},
                  {"empty", at::zeros({0, 3})},
                  {"number", at::zeros({})}};
  ASSERT_OK(load(state, dir.Join("c")));
  EXPECT_TRUE(at::equal(target.narrow(1, 2, 5), whole));
  EXPECT_TRUE(at::equal(target.narrow(1, 0, 2), at::zeros({7, 2})));
  EXPECT_TRUE(at::equal(*state.find("column")->get_if<at::Tensor>(),
                        whole.select(1, 2)));
  EXPECT_EQ(state.find("number")->get_if<at::Tensor>()->item<double>(), 2.5);
}

TEST(Checkpoint, ConvertsFloatsToTheTargetType) {
  const TempDir dir;
  ASSERT_OK(save({{"a", Whole(1)}}, dir.Join("c")));
  StateDict state{{"a", at::zeros({7, 5}, at::kBFloat16)}};
  ASSERT_OK(load(state, dir.Join("c")));
  EXPECT_TRUE(at::equal(*state.find("a")->get_if<at::Tensor>(),
                        Whole(1, at::kBFloat16)));
  StateDict integers{{"a", at::zeros({7, 5}, at::kLong)}};
  EXPECT_THAT(load(integers, dir.Join("c")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64")));
}

TEST(Checkpoint, OverwritesOnlyWhenAllowed) {
  const TempDir dir;
  ASSERT_OK(save({{"a", 1}}, dir.Join("c")));
  EXPECT_THAT(save({{"a", 2}}, dir.Join("c"), {.overwrite = false}),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK(save({{"a", 3}}, dir.Join("c")));
  StateDict state{{"a", 0}};
  ASSERT_OK(load(state, dir.Join("c")));
  EXPECT_EQ(*state.find("a")->get_if<int64_t>(), 3);
}

// Larger than any window, in several reads.
at::Tensor LargeWhole() {
  return at::arange(1500 * 1000, at::kFloat).view({1500, 1000});
}

// Flips a bit in the middle of LargeWhole(), which the file contains.
void FlipBit(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const float element = 1500 * 500;
  const size_t place =
      bytes.find(std::string(reinterpret_cast<const char*>(&element), 4));
  ASSERT_NE(place, std::string::npos) << path;
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

// Whichever parts the ranks load, together they load all of it.
TEST(Checkpoint, LoadFromRank0ChecksTensorsAcrossWindows) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const std::string dcp = SharedDir() + "/c";
    const std::string file = SharedDir() + "/c.pt";
    const auto load_as = [&](const std::string& path,
                             const Placements& placements, bool verify) {
      StateDict state{
          {"large", Placed(at::zeros({1500, 1000}), mesh, placements)}};
      return load_from_rank0(
          state, path,
          {.memory_bytes = dcp::kMinMemoryBytes, .verify = verify});
    };
    ASSERT_OK(
        save({{"large", Placed(LargeWhole(), mesh, {Replicate()})}}, dcp));
    ASSERT_OK(export_full(dcp, file));
    EXPECT_OK(load_as(dcp, {Shard(1)}, /*verify=*/true));
    if (get_rank() == 0) {
      FlipBit(dcp + "/__0_0.distcp");
      FlipBit(file);
    }
    world_group()->barrier()->wait();
    for (const std::string& path : {dcp, file}) {
      for (const auto& placement :
           std::vector<Placement>{Shard(0), Shard(1), Replicate()}) {
        EXPECT_THAT(load_as(path, {placement}, /*verify=*/true),
                    StatusIs(absl::StatusCode::kDataLoss,
                             AllOf(HasSubstr("large"), HasSubstr("damaged"))));
        EXPECT_OK(load_as(path, {placement}, /*verify=*/false));
      }
    }
  });
}

TEST(Checkpoint, RefusesPartialValues) {
  RunRanks(2, [] {
    init_process_group();
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const DTensor partial =
        DTensor::from_local(at::ones({2}), mesh, {Partial()});
    EXPECT_THAT(save({{"grad", partial}}, SharedDir() + "/c"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("grad"), HasSubstr("partial"))));
  });
}

}  // namespace
}  // namespace fsdp
