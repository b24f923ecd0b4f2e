// SPDX-License-Identifier: Apache-2.0
// Saves in the background while training goes on.

#include "fsdp/checkpoint/async_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros_like.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/limits.h"
#include "dcp/base/page_bytes.h"
#include "fsdp/checkpoint/background_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/ranks.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::WithoutNewThreads;
using ::fsdp::testing::RunRanks;
using ::fsdp::testing::SharedDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

double Loaded(const std::string& path, const at::Tensor& like) {
  StateDict state{{"a", at::zeros_like(like)}};
  EXPECT_OK(load(state, path));
  const at::Tensor& a = *state.find("a")->get_if<at::Tensor>();
  EXPECT_EQ(a.min().item<double>(), a.max().item<double>());
  return a.max().item<double>();
}

TEST(AsyncSaver, ChangesAfterWaitStagedAreNotSaved) {
  const TempDir dir;
  // More than the smallest pool holds, so that it streams through.
  for (const uint64_t staging_bytes : {uint64_t{0}, dcp::kMinMemoryBytes}) {
    AsyncSaver of_size({.staging_bytes = staging_bytes});
    const at::Tensor a = at::full({6 << 20}, 1.0f);
    for (int i = 1; i <= 3; ++i) {
      a.fill_(i);
      const std::string path = dir.Join(absl::StrCat(staging_bytes, "_", i));
      ASSERT_OK_AND_ASSIGN(SaveHandle handle,
                           of_size.save({{"a", a}, {"i", i}}, path));
      ASSERT_OK(handle.wait_staged());
      a.fill_(-1);
      ASSERT_OK(handle.wait());
      EXPECT_TRUE(handle.done());
      EXPECT_TRUE(handle.ok());
      EXPECT_EQ(Loaded(path, a), i);
    }
  }
}

// This process's memory that is backed by pages, in bytes.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<int64_t>(dcp::PageBytes());
}

TEST(AsyncSaver, PreparedMemoryIsTouchedBeforeTheFirstSave) {
  const TempDir dir;
  const at::Tensor a = at::full({48 << 20}, 1, at::kByte);
  const StateDict state{{"a", a}};
  AsyncSaver saver;
  const int64_t before = ResidentBytes();
  ASSERT_OK(saver.prepare(state, dir.Join("c")));
  const absl::Time hangs = absl::Now() + absl::Minutes(5);
  while (ResidentBytes() < before + a.numel() && absl::Now() < hangs) {
    std::this_thread::yield();
  }
  ASSERT_GE(ResidentBytes(), before + a.numel());
  const int64_t prepared = ResidentBytes();
  ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save(state, dir.Join("c")));
  ASSERT_OK(handle.wait());
  // The save needs little more.
  EXPECT_LT(ResidentBytes(), prepared + a.numel() / 2);
  EXPECT_EQ(Loaded(dir.Join("c"), a), 1);
}

TEST(AsyncSaver, PreparesForAnotherStateOrAtTheWrongTimeWithoutHarm) {
  const TempDir dir;
  const at::Tensor small = at::full({1 << 20}, 1, at::kByte);
  const at::Tensor large = at::full({80 << 20}, 2, at::kByte);
  AsyncSaver saver;
  // Large ones are still being touched when the save comes.
  ASSERT_OK(saver.prepare({{"a", small}}, dir.Join("a")));
  ASSERT_OK(saver.prepare({{"a", large}}, dir.Join("a")));
  ASSERT_OK(saver.prepare({{"a", small}}, dir.Join("a")));
  ASSERT_OK_AND_ASSIGN(SaveHandle first,
                       saver.save({{"a", large}}, dir.Join("a")));
  ASSERT_OK(saver.prepare({{"a", small}}, dir.Join("a")));
  ASSERT_OK(first.wait());
  ASSERT_OK_AND_ASSIGN(SaveHandle second,
                       saver.save({{"a", small}}, dir.Join("b")));
  ASSERT_OK(second.wait());
  EXPECT_EQ(Loaded(dir.Join("a"), large), 2);
  EXPECT_EQ(Loaded(dir.Join("b"), small), 1);
  // Memory prepared for a smaller state is allocated again for a larger one.
  AsyncSaver other;
  ASSERT_OK(other.prepare({{"a", small}}, dir.Join("d")));
  ASSERT_OK_AND_ASSIGN(SaveHandle third,
                       other.save({{"a", large}}, dir.Join("d")));
  ASSERT_OK(third.wait());
  EXPECT_EQ(Loaded(dir.Join("d"), large), 2);
  EXPECT_THAT(other.prepare({{"a", small}}, "tessera://host:1/x"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(AsyncSaver, MissingMemoryIsAnErrorOnAllRanks) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    AsyncSaver saver(
        {.staging_bytes = get_rank() == 1 ? uint64_t{1} << 60 : 0});
    const StateDict state{{"a", at::ones({4})}};
    ASSERT_OK(saver.prepare(state, path));
    ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save(state, path));
    EXPECT_THAT(handle.wait(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("1152921504606846976 bytes of memory")));
    EXPECT_FALSE(std::filesystem::exists(path));
  });
}

TEST(AsyncSaver, WritesAtMostAtTheGivenRateAndReportsIt) {
  const TempDir dir;
  const at::Tensor a = at::full({12 << 20}, 1, at::kByte);
  AsyncSaver saver({.max_rate = uint64_t{40} << 20});
  ASSERT_OK_AND_ASSIGN(SaveHandle handle,
                       saver.save({{"a", a}}, dir.Join("c")));
  ASSERT_OK(handle.wait_staged());
  ASSERT_OK(handle.wait());
  const SaveReport report = handle.report();
  EXPECT_GT(report.bytes_written, 12u << 20);
  EXPECT_GT(report.staged_seconds, 0);
  EXPECT_GT(report.stalled_seconds, 0);
  EXPECT_LE(report.staged_seconds, report.total_seconds);
  // All but the first block waited.
  EXPECT_GE(report.total_seconds,
            static_cast<double>((12u << 20) - dcp::kBlockBytes) / (40 << 20));
  EXPECT_EQ(Loaded(dir.Join("c"), a), 1);
}

TEST(AsyncSaver, StopEndsASaveThatWaitsForItsRate) {
  const TempDir dir;
  AsyncSaver saver({.max_rate = 1});
  ASSERT_OK_AND_ASSIGN(
      SaveHandle handle,
      saver.save({{"a", at::ones({20 << 20}, at::kByte)}}, dir.Join("c")));
  ASSERT_OK(handle.wait_staged());
  handle.request_stop();
  EXPECT_THAT(handle.wait(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(AsyncSaver, YieldsToTraining) {
  const TempDir dir;
  const StateDict state{{"a", at::ones({4})}};
  for (const bool yields : {false, true}) {
    BackgroundSaver saver({.yield_to_training = yields});
    int niceness = -1;
    ASSERT_OK_AND_ASSIGN(
        const auto save,
        saver.Save(state, dir.Join("c"), absl::OkStatus(), [&] {
          niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
        }));
    ASSERT_OK(save->AwaitOutcome());
    const int mine = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    EXPECT_EQ(niceness, yields ? 19 : mine);
  }
}

// At the limit of ulimit -u the other ranks wait all the same.
TEST(AsyncSaver, WithoutAThreadASaveIsDoneWhenItReturns) {
  const TempDir dir;
  const at::Tensor a = at::full({1 << 10}, 4.0f);
  const StateDict state{{"a", a}};
  AsyncSaver saver;
  WithoutNewThreads([&] {
    const int priority = getpriority(PRIO_PROCESS, 0);
    EXPECT_OK(saver.prepare(state, dir.Join("c")));
    absl::StatusOr<SaveHandle> handle = saver.save(state, dir.Join("c"));
    ASSERT_OK(handle);
    EXPECT_TRUE(handle->done());
    EXPECT_OK(handle->wait());
    // It is the thread that trains.
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), priority);
  });
  EXPECT_EQ(Loaded(dir.Join("c"), a), 4);
}

TEST(AsyncSaver, PlainValuesMayChangeAtOnce) {
  const TempDir dir;
  AsyncSaver saver;
  StateDict state{{"step", 1}};
  ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save(state, dir.Join("c")));
  state["step"] = 2;
  ASSERT_OK(handle.wait());
  ASSERT_OK(load(state, dir.Join("c")));
  EXPECT_EQ(*state.find("step")->get_if<int64_t>(), 1);
}

TEST(AsyncSaver, FailureSurfacesOnceAtTheNextSaveOnAllRanks) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    AsyncSaver saver;
    const StateDict good{{"a", at::ones({3})}};
    StateDict state = good;
    if (get_rank() == 1) state["bad"] = at::Tensor();
    ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save(state, path));
    EXPECT_OK(handle.wait_staged());
    // Rank 0 has asked, rank 1 has not: both are told.
    if (get_rank() == 0) {
      EXPECT_THAT(handle.wait(),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("rank 1"), HasSubstr("bad"))));
      EXPECT_FALSE(handle.ok());
    }
    EXPECT_THAT(saver.save(good, path),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("the previous save"), HasSubstr(path),
                               HasSubstr("bad"))));
    ASSERT_OK_AND_ASSIGN(SaveHandle next, saver.save(good, path));
    EXPECT_OK(next.wait());
    EXPECT_EQ(Loaded(path, at::ones({3})), 1);
  });
}

TEST(AsyncSaver, FailureIsReportedOnlyOnce) {
  RunRanks(2, [] {
    init_process_group();
    AsyncSaver saver;
    const StateDict state{{"a", at::ones({3})}};
    ASSERT_OK_AND_ASSIGN(SaveHandle handle,
                         saver.save(state, SharedDir() + "/none/such"));
    EXPECT_THAT(handle.wait(), StatusIs(absl::StatusCode::kNotFound));
    ASSERT_OK_AND_ASSIGN(SaveHandle next,
                         saver.save(state, SharedDir() + "/c"));
    EXPECT_OK(next.wait());
  });
}

TEST(AsyncSaver, StopsOnRequest) {
  RunRanks(2, [] {
    init_process_group();
    const std::string path = SharedDir() + "/c";
    AsyncSaver saver({.staging_bytes = dcp::kMinMemoryBytes});
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const StateDict state{{"a", distribute_tensor(at::ones({32 << 20}), mesh,
                                                  {Shard(0)}, std::nullopt)}};
    ASSERT_OK_AND_ASSIGN(SaveHandle handle, saver.save(state, path));
    if (get_rank() == 1) handle.request_stop();
    const absl::Status status = handle.wait();
    // It may have ended before; but all ranks report the same.
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
    }
    fsdp::testing::Report(status.ok() ? 1 : 0);
    ASSERT_OK_AND_ASSIGN(SaveHandle next, saver.save(state, path));
    EXPECT_OK(next.wait());
  });
}

TEST(AsyncSaver, DestructorWaitsForTheSave) {
  const TempDir dir;
  const at::Tensor a = at::full({4 << 20}, 7.0f);
  {
    AsyncSaver saver;
    ASSERT_OK(saver.save({{"a", a}}, dir.Join("c")));
  }
  EXPECT_EQ(Loaded(dir.Join("c"), a), 7);
}

TEST(AsyncSaver, TheProcessSaverFollowsTheJob) {
  const TempDir dir;
  const at::Tensor a = at::full({8}, 7.0f);
  ASSERT_OK_AND_ASSIGN(SaveHandle handle,
                       async_save({{"a", a}}, dir.Join("c")));
  EXPECT_OK(handle.wait());
  RunRanks(2, [] {
    init_process_group();
    for (int i = 0; i < 2; ++i) {
      const std::string path = absl::StrCat(SharedDir(), "/", i);
      ASSERT_OK_AND_ASSIGN(SaveHandle later,
                           async_save({{"a", at::full({8}, 1.0 * i)}}, path));
      EXPECT_OK(later.wait());
      EXPECT_EQ(Loaded(path, at::ones({8})), i);
    }
  });
}

}  // namespace
}  // namespace fsdp
