// SPDX-License-Identifier: Apache-2.0

#include "fsdp/mesh/process_group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "ATen/ops/full.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RankFailures;
using testing::RunRanks;
using testing::ThrownMessage;

// The sum of `value` over the ranks in `group`.
float SumOver(const ProcessGroup& group, float value) {
  std::vector<at::Tensor> tensors = {at::full({3}, value)};
  WaitForWork(
      IssueWork(*group, "sum", [&] { return group->allreduce(tensors); }),
      *group, "sum");
  return tensors[0][0].item<float>();
}

TEST(ProcessGroup, ASingleProcessIsAJobOfOne) {
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(get_rank(), 0);
  EXPECT_EQ(get_world_size(), 1);
  EXPECT_THROW(world_group(), c10::Error);
  EXPECT_THROW(new_group({0}, "g"), c10::Error);
  init_process_group();
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(SumOver(world_group(), 3), 3);
  EXPECT_EQ(describe(*world_group()), "rank 0 of 1 in group \"world\"");
  EXPECT_THAT(ThrownMessage([] { init_process_group(); }),
              HasSubstr("destroy_process_group first"));
  destroy_process_group();
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
  init_process_group({.backend = "cpu:gloo"});
  EXPECT_EQ(SumOver(world_group(), 2), 2);
  destroy_process_group();
}

// Writes to a pipe that nobody reads, as Gloo does to a rank that has died.
void ExpectBrokenPipesAreErrors() {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

TEST(ProcessGroup, ABrokenPipeIsAnErrorNotASignal) {
  RunRanks(1, [] {
    signal(SIGPIPE, SIG_DFL);
    init_process_group();
    ExpectBrokenPipesAreErrors();
    // A child process still dies of the signal, as usual.
    const int status = std::system("kill -PIPE $$");
    EXPECT_EQ(WTERMSIG(status), SIGPIPE);
    destroy_process_group();
    ExpectBrokenPipesAreErrors();
  });
}

TEST(ProcessGroup, KeepsAnotherHandlerForBrokenPipes) {
  RunRanks(1, [] {
    static int calls = 0;
    signal(SIGPIPE, [](int) { ++calls; });
    init_process_group();
    ExpectBrokenPipesAreErrors();
    EXPECT_EQ(calls, 1);
  });
}

TEST(ProcessGroup, RefusesUnknownBackends) {
  for (const char* backend :
       {"mpi", "cuda:gloo", "cpu:gloo,cpu:gloo", "gloo,", "cpu:gloo:x"}) {
    SCOPED_TRACE(backend);
    EXPECT_THROW(init_process_group({.backend = backend}), c10::ValueError);
    EXPECT_FALSE(is_initialized());
  }
  EXPECT_THROW(init_process_group({.timeout = std::chrono::milliseconds(0)}),
               c10::ValueError);
}

TEST(ProcessGroup, RanksFindEachOther) {
  const auto body = [] {
    init_process_group();
    EXPECT_EQ(get_world_size(), 3);
    EXPECT_EQ(get_local_rank(), get_rank());
    EXPECT_EQ(SumOver(world_group(), static_cast<float>(get_rank())), 3);
    destroy_process_group();
  };
  RunRanks(3, body);
  RunRanks(3, body, {.agent_store = false});
  // Keys in the store from before a restart do not interfere.
  RunRanks(3, body, {.environment = {{"TORCHELASTIC_RESTART_COUNT", "1"}}});
}

TEST(ProcessGroup, UsesTheNamedInterface) {
  const auto body = [] {
    init_process_group();
    EXPECT_EQ(SumOver(world_group(), 1), 2);
  };
  RunRanks(2, body, {.environment = {{"GLOO_SOCKET_IFNAME", "lo"}}});
  RunRanks(2,
           [] {
             EXPECT_THAT(ThrownMessage([] { init_process_group(); }),
                         HasSubstr("GLOO_SOCKET_IFNAME=nosuchnet0"));
           },
           {.environment = {{"GLOO_SOCKET_IFNAME", "nosuchnet0"}}});
}

TEST(ProcessGroup, MakesGroupsOfSomeRanks) {
  RunRanks(4, [] {
    init_process_group();
    const int64_t rank = get_rank();
    const ProcessGroup pair = new_group({3, 1}, "pair");
    EXPECT_EQ(pair != nullptr, rank % 2 == 1);
    if (pair) {
      EXPECT_EQ(pair->getRank(), rank == 3 ? 0 : 1);
      EXPECT_THAT(get_process_group_ranks(pair), ElementsAre(3, 1));
      EXPECT_EQ(SumOver(pair, static_cast<float>(rank)), 4);
    }
    const ProcessGroup half = new_subgroups({{0, 1}, {2, 3}}, "half");
    EXPECT_EQ(SumOver(half, static_cast<float>(rank)), rank < 2 ? 1 : 5);
    EXPECT_EQ(new_subgroups({{0}, {1}}, "few") == nullptr, rank >= 2);
    EXPECT_THROW(new_group({}, "g"), c10::ValueError);
    EXPECT_THROW(new_group({0, 4}, "g"), c10::ValueError);
    EXPECT_THROW(new_group({-1}, "g"), c10::ValueError);
    EXPECT_THAT(ThrownMessage([] {
                  new_group({1, 1}, "g");
                }),
                HasSubstr("group \"g\" has rank 1 twice"));
    EXPECT_THROW(new_subgroups({{0, 1}, {1, 2}}, "g"), c10::ValueError);
    // The refused call has made nothing that the others would wait for.
    EXPECT_EQ(SumOver(world_group(), 1), 4);
  });
}

TEST(ProcessGroup, ASecondGroupHasItsOwnBackends) {
  RunRanks(3, [] {
    init_process_group();
    const ProcessGroup group = new_group({2, 0}, "pair");
    if (!group) return;  // Only the group's ranks make the second group.
    const ProcessGroup second = second_group(group);
    EXPECT_NE(second, group);
    EXPECT_EQ(second, second_group(group));
    EXPECT_NE(second->getBackend(c10::kCPU), group->getBackend(c10::kCPU));
    EXPECT_THAT(get_process_group_ranks(second), ElementsAre(2, 0));
    EXPECT_EQ(describe(*second), describe(*group));
    EXPECT_NE(key_of(second), key_of(group));
    EXPECT_EQ(SumOver(second, 1), 2);
    EXPECT_EQ(SumOver(group, 2), 4);
  });
}

TEST(ProcessGroup, CountsThroughADecoratedBackend) {
  RunRanks(2, [] {
    init_process_group();
    testing::CountingBackend& counts = testing::Count(world_group());
    EXPECT_EQ(&testing::Count(world_group()), &counts);
    EXPECT_EQ(SumOver(world_group(), 1), 2);
    EXPECT_EQ(counts.ToString(), "all_reduce 1");
    EXPECT_EQ(counts.bytes("all_reduce"), 12);
    EXPECT_THAT(get_process_group_ranks(world_group()), ElementsAre(0, 1));
    counts.Reset();
    EXPECT_THAT(counts.ToString(), IsEmpty());
  });
}

TEST(ProcessGroup, ADeadRankEndsTheOthers) {
  RunRanks(3,
           [] {
             init_process_group();
             const ProcessGroup group = new_group({0, 1, 2}, "shard");
             if (get_rank() == 1) _exit(0);
             EXPECT_THAT(
                 ThrownMessage([&] { SumOver(group, 1); }),
                 AllOf(HasSubstr(describe(*group)),
                       HasSubstr("group \"shard\""), HasSubstr("sum failed")));
           },
           {.deadline = std::chrono::seconds(60), .may_die = {1}});
}

TEST(ProcessGroup, ACollectiveThatOneRankSkipsTimesOut) {
  RunRanks(2, [] {
    init_process_group();
    // Set only now, because on a slow machine the ranks come one after the
    // other.
    world_group()->getBackend(c10::kCPU)->setTimeout(
        std::chrono::milliseconds(500));
    if (get_rank() == 0) {
      EXPECT_THAT(ThrownMessage([] { SumOver(world_group(), 1); }),
                  AllOf(HasSubstr("rank 0 of 2 in group \"world\": sum failed"),
                        HasSubstr("500ms")));
    }
    testing::WaitForAllRanks();
  });
}

TEST(ProcessGroup, AGroupThatOneRankDoesNotMakeTimesOut) {
  RunRanks(2, [] {
    // Enough time to meet once both have been started.
    testing::WaitForAllRanks();
    init_process_group({.timeout = std::chrono::seconds(10)});
    if (get_rank() == 0) {
      EXPECT_THAT(ThrownMessage([] {
                    new_group({0, 1}, "tp");
                  }),
                  AllOf(HasSubstr("rank 0 of 2 in group \"tp\""),
                        HasSubstr("could not be connected with gloo")));
    }
    testing::WaitForAllRanks();
  });
}

TEST(ProcessGroup, AnIncompleteJobTimesOut) {
  RunRanks(2,
           [] {
             if (std::string(std::getenv("RANK")) == "1") return;
             EXPECT_THAT(ThrownMessage([] {
                           init_process_group(
                               {.timeout = std::chrono::milliseconds(500)});
                         }),
                         AllOf(HasSubstr("rank 0 of 2"), HasSubstr("500 ms")));
             EXPECT_FALSE(is_initialized());
           },
           {.agent_store = false});
}

TEST(Work, AddsContextBeforeTheError) {
  const auto context = [] { return std::string("while reading"); };
  WithContext(context, [] {});
  EXPECT_THAT(ThrownMessage([&] {
                WithContext(context, [] { TORCH_CHECK(false, "no disk"); });
              }),
              HasSubstr("while reading: no disk"));
  EXPECT_THROW(WithContext(context, [] { (void)std::string("").at(1); }),
               c10::DistBackendError);
  EXPECT_THAT(CatchErrorText([] { TORCH_CHECK(false, "x"); }), "x");
  EXPECT_THAT(CatchErrorText([] {}), IsEmpty());
}

}  // namespace
}  // namespace fsdp
