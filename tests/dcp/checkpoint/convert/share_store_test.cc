// SPDX-License-Identifier: Apache-2.0
// Workers that share a conversion into an object store: in any number, one
// after the other and at once; processes that die at each request; requests
// that fail, or whose answer is lost; and another worker that does all of its
// work between two operations.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/object/object_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/share_fixture.h"
#include "tests/testing/hooked_storage.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kAlreadyExists;
using ::absl::StatusCode::kFailedPrecondition;
using ::absl::StatusCode::kUnavailable;
using ::absl::StatusCode::kUnimplemented;
using ::dcp::testing::AllWork;
using ::dcp::testing::DataOf;
using ::dcp::testing::ExpectSame;
using ::dcp::testing::HookedStorage;
using ::dcp::testing::kModel;
using ::dcp::testing::kOther;
using ::dcp::testing::OptionsOf;
using ::dcp::testing::Place;
using ::dcp::testing::Prepare;
using ::dcp::testing::Scenario;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Tree;
using ::dcp::testing::Work;
using ::testing::HasSubstr;

constexpr absl::string_view kRoot = "s3://bucket";

std::string ModelPath() { return absl::StrCat(kRoot, kModel); }

// A process that uses the store.
ObjectFileSystem NewProcess(SimObjectServer& server) {
  return ObjectFileSystem(server.Opener());
}

// The objects that one worker makes of the scenario.
Tree ExpectedInStore(const Scenario& scenario) {
  SimObjectServer server;
  ObjectFileSystem fs = NewProcess(server);
  Prepare(scenario, fs);
  AllWork(fs, scenario, 1);
  EXPECT_EQ(server.num_uploads(), 0);
  return Place(fs, kRoot);
}

// The names of files of a DCP checkpoint have the id of the plan, which is that
// of one source.
void ExpectResult(SimObjectServer& server, const Scenario& scenario,
                  const Tree& expected) {
  ObjectFileSystem fs = NewProcess(server);
  if (expected.contains(absl::StrCat(scenario.dst, "/.metadata"))) {
    const Tree found = Place(fs, kRoot);
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_EQ(DataOf(found), DataOf(expected));
    ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                         VerifyCheckpoint(fs, scenario.path(), {}));
    EXPECT_TRUE(verified.findings.empty());
  } else {
    ExpectSame(fs, expected, kRoot);
  }
  EXPECT_EQ(server.num_uploads(), 0);
}

// Removes the replaced files that a worker left because it died after the
// checkpoint had appeared.
void RemoveReplaced(SimObjectServer& server, const Scenario& scenario) {
  ObjectFileSystem fs = NewProcess(server);
  ASSERT_OK_AND_ASSIGN(const Litter litter,
                       FindLitter(fs, scenario.path(), INT64_MAX, {}));
  EXPECT_TRUE(litter.uploads.empty());
  ASSERT_OK(RemoveLitter(fs, litter, {}));
}

// Its uploads end with their process.
TEST(ShareElsewhere, AStoreOfAPluginIsRefused) {
  SimObjectServer server;
  ObjectFileSystem fs = NewProcess(server);
  EXPECT_THAT(ConvertShare(fs, ModelPath(), "gs://bucket/out", {}, {}).status(),
              StatusIs(kUnimplemented, HasSubstr("gs://bucket/out: workers")));
}

class ShareStore : public ::testing::TestWithParam<Scenario> {};

TEST_P(ShareStore, WritesWhatOneProcessWrites) {
  const Scenario& scenario = GetParam();
  SimObjectServer plain_server;
  ObjectFileSystem plain = NewProcess(plain_server);
  Prepare(scenario, plain);
  ASSERT_OK(ConvertCheckpoint(plain, ModelPath(), scenario.path(),
                              OptionsOf(scenario)));
  SimObjectServer server;
  ObjectFileSystem fs = NewProcess(server);
  Prepare(scenario, fs);
  AllWork(fs, scenario, 2);
  if (fs.Stat(scenario.path() + "/.metadata").ok()) {
    EXPECT_EQ(DataOf(Place(fs, kRoot)), DataOf(Place(plain, kRoot)));
  } else {
    ExpectSame(fs, Place(plain, kRoot), kRoot);
  }
  ASSERT_OK_AND_ASSIGN(const VerifyReport verified,
                       VerifyCheckpoint(fs, scenario.path(), {}));
  EXPECT_TRUE(verified.findings.empty());
}

TEST_P(ShareStore, WritesTheSameForAnyNumberOfWorkers) {
  const Tree expected = ExpectedInStore(GetParam());
  for (const uint32_t count : {2u, 3u, 40u}) {
    SCOPED_TRACE(count);
    SimObjectServer server;
    ObjectFileSystem fs = NewProcess(server);
    Prepare(GetParam(), fs);
    AllWork(fs, GetParam(), count);
    ExpectResult(server, GetParam(), expected);
  }
}

TEST_P(ShareStore, WorkersRunAtOnce) {
  const Tree expected = ExpectedInStore(GetParam());
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SimObjectServer server({.seed = seed});
    {
      ObjectFileSystem fs = NewProcess(server);
      Prepare(GetParam(), fs);
    }
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 6; ++i) {
      // Each share twice.
      threads.emplace_back([&, i] {
        ObjectFileSystem fs = NewProcess(server);
        EXPECT_OK(Work(fs, GetParam(), i % 3, 3).status());
      });
    }
    for (std::thread& thread : threads) thread.join();
    // A worker may have put a record after another had removed the rest, and
    // then died; here none does.
    ExpectResult(server, GetParam(), expected);
  }
}

TEST_P(ShareStore, AWorkerThatComesLateFindsItsWorkDone) {
  SimObjectServer server;
  ObjectFileSystem fs = NewProcess(server);
  Prepare(GetParam(), fs);
  AllWork(fs, GetParam(), 2);
  const Tree before = Place(fs, kRoot);
  const uint64_t num_mutations = server.num_mutations();
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const ShareResult result, Work(fs, GetParam(), i, 3));
    EXPECT_TRUE(result.is_complete);
    EXPECT_FALSE(result.has_committed);
    EXPECT_EQ(result.num_written, 0u);
  }
  EXPECT_EQ(server.num_mutations(), num_mutations);
  ExpectResult(server, GetParam(), before);
}

class ShareStoreFaults : public ::testing::TestWithParam<Scenario> {};

// The processes die at each request that changes something.
TEST_P(ShareStoreFaults, SurvivesTheDeathOfItsWorkers) {
  const Tree expected = ExpectedInStore(GetParam());
  bool died = true;
  for (uint64_t moment = 0; died; ++moment) {
    SCOPED_TRACE(moment);
    SimObjectServer server({.seed = moment + 1});
    {
      ObjectFileSystem fs = NewProcess(server);
      Prepare(GetParam(), fs);
      server.KillClientsAfter(moment);
      for (uint32_t i = 0; i < 2; ++i) {
        if (!Work(fs, GetParam(), i, 2).ok()) break;
      }
      died = server.clients_died();
    }
    server.Heal();
    ObjectFileSystem fs = NewProcess(server);
    AllWork(fs, GetParam(), 3);
    RemoveReplaced(server, GetParam());
    ExpectResult(server, GetParam(), expected);
    if (HasFailure()) return;
  }
}

// A request fails, or its answer is lost; the worker may or may not notice.
TEST_P(ShareStoreFaults, SurvivesRequestsThatFail) {
  const Tree expected = ExpectedInStore(GetParam());
  for (const bool happens : {false, true}) {
    bool failed = true;
    for (uint64_t moment = 0; failed; ++moment) {
      SCOPED_TRACE(absl::StrCat(moment, happens ? " lost" : " refused"));
      SimObjectServer server({.seed = moment + 1});
      {
        ObjectFileSystem fs = NewProcess(server);
        Prepare(GetParam(), fs);
        const uint64_t first = server.num_calls();
        server.FailCall(moment, absl::UnavailableError("503"), happens);
        for (uint32_t i = 0; i < 2; ++i) {
          Work(fs, GetParam(), i, 2).status().IgnoreError();
        }
        failed = server.num_calls() - first > moment;
      }
      server.Heal();
      ObjectFileSystem fs = NewProcess(server);
      AllWork(fs, GetParam(), 1);
      RemoveReplaced(server, GetParam());
      ExpectResult(server, GetParam(), expected);
      if (HasFailure()) return;
    }
  }
}

// Between two operations of the last worker, another one does the same and
// ends, with all that belongs to it.
TEST_P(ShareStoreFaults, SeveralWorkersEndTheWorkAtOnce) {
  const Tree expected = ExpectedInStore(GetParam());
  bool met = true;
  for (int moment = 0; met; ++moment) {
    SCOPED_TRACE(moment);
    SimObjectServer server;
    ObjectFileSystem fs = NewProcess(server);
    Prepare(GetParam(), fs);
    ASSERT_OK(Work(fs, GetParam(), 0, 2));
    met = false;
    int num_left = moment;
    ObjectFileSystem slow = NewProcess(server);
    HookedStorage hooked(slow, [&] {
      if (num_left-- == 0) {
        met = true;
        EXPECT_OK(Work(fs, GetParam(), 1, 2));
      }
      return absl::OkStatus();
    });
    EXPECT_OK(Work(hooked, GetParam(), 1, 2));
    ExpectResult(server, GetParam(), expected);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Destinations, ShareStore,
                         ::testing::Values(Scenario{.name = "dcp",
                                                    .dst = "out",
                                                    .mesh = "shard=3",
                                                    .root = std::string(kRoot)},
                                           Scenario{.name = "dcp_over_dcp",
                                                    .dst = "out",
                                                    .overwrite = true,
                                                    .mesh = "shard=2",
                                                    .casts = {"a*=bf16"},
                                                    .root = std::string(kRoot)},
                                           Scenario{.name = "columns",
                                                    .dst = "out",
                                                    .mesh = "shard=2",
                                                    .column = 1,
                                                    .root = std::string(kRoot)},
                                           Scenario{.name = "torch_over_torch",
                                                    .dst = "model.pt",
                                                    .overwrite = true,
                                                    .root = std::string(kRoot)},
                                           Scenario{.name = "safetensors",
                                                    .dst = "model.safetensors",
                                                    .root = std::string(kRoot)},
                                           Scenario{
                                               .name = "shards",
                                               .dst = "hf",
                                               .to = Format::kSafetensors,
                                               .max_shard_bytes = 3000,
                                               .root = std::string(kRoot)}),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Destinations, ShareStoreFaults,
                         ::testing::Values(Scenario{.name = "dcp_over_dcp",
                                                    .dst = "out",
                                                    .overwrite = true,
                                                    .mesh = "shard=2",
                                                    .root = std::string(kRoot)},
                                           Scenario{.name = "torch_over_torch",
                                                    .dst = "model.pt",
                                                    .overwrite = true,
                                                    .root = std::string(kRoot)},
                                           Scenario{
                                               .name = "shards",
                                               .dst = "hf",
                                               .to = Format::kSafetensors,
                                               .max_shard_bytes = 5000,
                                               .root = std::string(kRoot)}),
                         [](const auto& test) { return test.param.name; });

class ShareStoreWriters : public ::testing::Test {
 protected:
  ShareStoreWriters() : fs_(server_.Opener()) { Prepare(dcp_, fs_); }

  const Scenario dcp_ = {.name = "dcp",
                         .dst = "out",
                         .overwrite = true,
                         .mesh = "shard=3",
                         .root = std::string(kRoot)};
  const Scenario shards_ = {.name = "shards",
                            .dst = "hf",
                            .to = Format::kSafetensors,
                            .max_shard_bytes = 3000,
                            .root = std::string(kRoot)};
  SimObjectServer server_;
  ObjectFileSystem fs_;
};

TEST_F(ShareStoreWriters, OtherWritersAreRefusedWhileWorkersAreAtWork) {
  ASSERT_OK(Work(fs_, dcp_, 0, 2));
  EXPECT_THAT(ConvertCheckpoint(fs_, ModelPath(), dcp_.path(), OptionsOf(dcp_)),
              StatusIs(kFailedPrecondition,
                       HasSubstr("is the destination of workers")));
  Scenario other = dcp_;
  other.mesh = "shard=5";
  EXPECT_THAT(Work(fs_, other, 0, 2),
              StatusIs(kFailedPrecondition, HasSubstr("another plan")));
  ASSERT_OK(Work(fs_, dcp_, 1, 2));
  EXPECT_OK(Work(fs_, other, 0, 1));
}

TEST_F(ShareStoreWriters, WorkIsShownAndDiscarded) {
  for (const Scenario& scenario : {dcp_, shards_}) {
    SCOPED_TRACE(scenario.name);
    const Tree before = Place(fs_, kRoot);
    const uint64_t num_objects = server_.num_objects();
    ASSERT_OK(Work(fs_, scenario, 0, 2));
    ASSERT_OK_AND_ASSIGN(const std::optional<WorkStatus> status,
                         FindWork(fs_, scenario.path()));
    ASSERT_TRUE(status.has_value());
    EXPECT_GT(status->done.size(), 0);
    EXPECT_LT(status->done.size(), status->num_pieces);
    EXPECT_OK(DiscardWork(fs_, scenario.path()));
    EXPECT_EQ(server_.num_objects(), num_objects);
    EXPECT_EQ(server_.num_uploads(), 0);
    ExpectSame(fs_, before, kRoot);
    ASSERT_OK_AND_ASSIGN(const std::optional<WorkStatus> none,
                         FindWork(fs_, scenario.path()));
    EXPECT_FALSE(none.has_value());
  }
}

TEST_F(ShareStoreWriters, AnUploadThatSomebodyEndedIsMadeAgain) {
  ASSERT_OK(Work(fs_, shards_, 0, 2));
  ASSERT_OK_AND_ASSIGN(const std::vector<HiddenFile> hidden,
                       fs_.ListHidden(shards_.path()));
  ASSERT_FALSE(hidden.empty());
  ASSERT_OK(fs_.RemoveHidden(hidden[0]));
  EXPECT_THAT(Work(fs_, shards_, 1, 2),
              StatusIs(kUnavailable, HasSubstr("run again")));
  AllWork(fs_, shards_, 1);
  EXPECT_EQ(server_.num_uploads(), 0);
}

// Between two operations of a writer, another one writes another model to the
// same place. One of both is there afterwards, whole.
TEST_F(ShareStoreWriters, TwoWritersOfADirectoryAreNotMixed) {
  std::vector<Tree> whole;
  for (const absl::string_view model : {kModel, kOther}) {
    SimObjectServer server;
    ObjectFileSystem fs = NewProcess(server);
    Prepare(shards_, fs);
    ASSERT_OK(ConvertCheckpoint(fs, absl::StrCat(kRoot, model), shards_.path(),
                                OptionsOf(shards_)));
    whole.push_back(Place(fs, kRoot));
  }
  bool met = true;
  for (int moment = 0; met; ++moment) {
    SCOPED_TRACE(moment);
    SimObjectServer server;
    ObjectFileSystem fs = NewProcess(server);
    Prepare(shards_, fs);
    met = false;
    int num_left = moment;
    ObjectFileSystem slow = NewProcess(server);
    absl::Status other;
    HookedStorage hooked(slow, [&] {
      if (num_left-- != 0) return absl::OkStatus();
      met = true;
      other = ConvertCheckpoint(fs, absl::StrCat(kRoot, kOther), shards_.path(),
                                OptionsOf(shards_))
                  .status();
      return absl::OkStatus();
    });
    const absl::Status first =
        ConvertCheckpoint(hooked, ModelPath(), shards_.path(),
                          OptionsOf(shards_))
            .status();
    EXPECT_NE(first.ok(), met && other.ok()) << first << other;
    const Tree found = Place(fs, kRoot);
    EXPECT_TRUE(found == whole[first.ok() ? 0 : 1]);
    EXPECT_THAT(
        first.ok() ? other : first,
        met ? StatusIs(kAlreadyExists) : StatusIs(absl::StatusCode::kOk));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace dcp
