// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/store_destination.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_systems/routed_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/convert/convert_fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/thread_coordinator.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kAlreadyExists;
using ::absl::StatusCode::kFailedPrecondition;
using ::dcp::testing::ExpectSame;
using ::dcp::testing::LoadBytes;
using ::dcp::testing::RunRanks;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SaveAll;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::SimStorage;
using ::dcp::testing::SmallModel;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// A disk and a store client, as one program sees them.
struct Machine {
  explicit Machine(SimObjectServer& server) : Machine(server, {}) {}
  Machine(SimObjectServer& server, const SimStorage::Options& options)
      : fs(NewRoutedFileSystem(std::make_unique<SimStorage>(options),
                               server.Opener())) {
    SaveAll(*fs, "/old", {SampleTensor("a", DType::kFloat32, {4, 3})});
    SaveAll(*fs, "/new", SmallModel());
  }

  std::unique_ptr<FileSystem> fs;
};

struct Target {
  const char* path;
  uint64_t max_file_bytes;  // for safetensors
};

// All possible outputs: DCP, one file in each format, and shards with an index.
constexpr Target kTargets[] = {{"s3://bucket/run/dcp", 0},
                               {"s3://bucket/run/one.safetensors", 0},
                               {"s3://bucket/run/one.pt", 0},
                               {"s3://bucket/run/shards", 40}};

absl::Status Write(FileSystem& fs, absl::string_view src, const Target& target,
                   bool overwrite) {
  ConvertOptions options;
  options.overwrite = overwrite;
  if (target.max_file_bytes > 0) {
    options.to = Format::kSafetensors;
    options.max_shard_bytes = target.max_file_bytes;
  }
  return ConvertCheckpoint(fs, src, target.path, std::move(options)).status();
}

TEST(StoreDestination, EveryFormatGoesUpDownAndAcross) {
  SimObjectServer server;
  Machine machine(server);
  const std::vector<SampleTensor> large = {
      SampleTensor("w", DType::kFloat32, {5000, 1000}),  // 3 parts
      SampleTensor("b", DType::kBFloat16, {33})};
  SaveAll(*machine.fs, "/large", large);
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.path);
    ASSERT_OK(Write(*machine.fs, "/new", target, false));
    ExpectSame(*machine.fs, "/new", target.path);
    const std::string moved = absl::StrCat(target.path, "-large.pt");
    ASSERT_OK(ConvertCheckpoint(*machine.fs, "/large", moved, {}).status());
    ExpectSame(*machine.fs, "/large", moved);
    const std::string across = absl::StrCat(target.path, "-across");
    ASSERT_OK(ConvertCheckpoint(*machine.fs, moved, across, {}).status());
    ExpectSame(*machine.fs, "/large", across);
    const std::string down =
        absl::StrCat("/", &target - kTargets, ".safetensors");
    ASSERT_OK(ConvertCheckpoint(*machine.fs, across, down, {}).status());
    ExpectSame(*machine.fs, "/large", down);
  }
  EXPECT_EQ(server.num_uploads(), 0);
}

TEST(StoreDestination, LargeHeadsOfSafetensorsKeepTheirDigests) {
  SimObjectServer server;
  Machine machine(server);
  SaveAll(*machine.fs, "/large",
          {SampleTensor("w", DType::kFloat32, {5000, 1000})});
  ASSERT_OK(ConvertCheckpoint(*machine.fs, "/large", "/disk.safetensors", {})
                .status());
  ASSERT_OK(ConvertCheckpoint(*machine.fs, "/large",
                              "s3://bucket/store.safetensors", {})
                .status());
  const absl::StatusOr<std::string> disk =
      ReadFile(*machine.fs, "/disk.safetensors", 1 << 30, false);
  ASSERT_OK(disk.status());
  EXPECT_TRUE(*disk == server.BytesOf("store.safetensors"));
}

TEST(StoreDestination, ReplacesOnlyWithOverwrite) {
  SimObjectServer server;
  Machine machine(server);
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.path);
    ASSERT_OK(Write(*machine.fs, "/old", target, false));
    const std::vector<std::string> before = server.Keys();
    EXPECT_THAT(Write(*machine.fs, "/new", target, false),
                StatusIs(kAlreadyExists));
    EXPECT_EQ(server.Keys(), before);
    const absl::Status replaced = Write(*machine.fs, "/new", target, true);
    if (target.max_file_bytes > 0) {
      EXPECT_THAT(replaced, StatusIs(kAlreadyExists, HasSubstr("mixture")));
      ExpectSame(*machine.fs, "/old", target.path);
      continue;
    }
    ASSERT_OK(replaced);
    ExpectSame(*machine.fs, "/new", target.path);
    EXPECT_EQ(server.Keys().size(), before.size());  // nothing old stayed
  }
  server.PutBytes("run/two.pt", "these are notes");
  EXPECT_THAT(Write(*machine.fs, "/new", {"s3://bucket/run/two.pt", 0}, true),
              StatusIs(kFailedPrecondition, HasSubstr("begins like neither")));
}

// Whether `path` is a whole checkpoint with the tensors in /new, or in /old, or
// not a checkpoint.
enum class Found { kNothing, kOld, kNew };

Found Look(FileSystem& fs, const Target& target) {
  auto opened = Checkpoint::Open(fs, target.path, {});
  if (!opened.ok()) return Found::kNothing;
  const size_t num = (*opened)->entries().size();
  opened->reset();
  ExpectSame(fs, num == 1 ? "/old" : "/new", target.path);
  return num == 1 ? Found::kOld : Found::kNew;
}

struct Case {
  Target target;
  bool overwrite;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Target& target : kTargets) {
    cases.push_back({target, false});
    if (target.max_file_bytes == 0) cases.push_back({target, true});
  }
  return cases;
}

// Writes /new with a client that dies after `after` changes; returns whether it
// died.
bool WriteAndDie(SimObjectServer& server, const Case& c, uint64_t after) {
  Machine machine(server);
  if (c.overwrite) EXPECT_OK(Write(*machine.fs, "/old", c.target, false));
  server.KillClientsAfter(after);
  const absl::Status status = Write(*machine.fs, "/new", c.target, c.overwrite);
  const bool died = server.clients_died();
  if (!died) EXPECT_OK(status);
  server.Heal();
  return died;
}

// The client dies before, during or after each change that it makes: there is
// always the old checkpoint, the new one or, where there was none, nothing.
TEST(StoreDestination, SurvivesAClientThatDiesAtAnyCall) {
  for (const Case& c : Cases()) {
    uint64_t num_deaths = 0;
    bool seen_new = false;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      bool died = true;
      for (uint64_t after = 0; died; ++after, ++num_deaths) {
        SCOPED_TRACE(absl::StrCat(c.target.path, " overwrite=", c.overwrite,
                                  " after=", after, " seed=", seed));
        ASSERT_LT(after, 100u);
        SimObjectServer server({.seed = seed * 1000 + after});
        died = WriteAndDie(server, c, after);
        Machine machine(server);
        const Found found = Look(*machine.fs, c.target);
        if (!died) EXPECT_EQ(found, Found::kNew);
        EXPECT_NE(found, c.overwrite ? Found::kNothing : Found::kOld);
        seen_new = seen_new || (died && found == Found::kNew);
        // The leftovers do not stop the next writer, except in a directory with
        // several files.
        if (!absl::IsNotFound(machine.fs->List(c.target.path).status()) &&
            c.target.max_file_bytes > 0) {
          continue;
        }
        ASSERT_OK(Write(*machine.fs, "/new", c.target, true));
        EXPECT_EQ(Look(*machine.fs, c.target), Found::kNew);
      }
    }
    EXPECT_GT(num_deaths, 6u);
    EXPECT_TRUE(seen_new) << c.target.path;  // one died at the commit
  }
}

// A call fails, before or after it took effect: an error leaves the old
// checkpoint or the new one, and success means the new one.
TEST(StoreDestination, SurvivesFailedCallsAndLostAnswers) {
  for (const Case& c : Cases()) {
    for (const bool happens : {false, true}) {
      bool failed = true;
      for (uint64_t call = 0; failed; ++call) {
        SCOPED_TRACE(absl::StrCat(c.target.path, " overwrite=", c.overwrite,
                                  " call=", call, " happens=", happens));
        ASSERT_LT(call, 200u);
        SimObjectServer server;
        Machine machine(server);
        if (c.overwrite) ASSERT_OK(Write(*machine.fs, "/old", c.target, false));
        const uint64_t before = server.num_calls();
        server.FailCall(call, absl::UnavailableError("503"), happens);
        const absl::Status status =
            Write(*machine.fs, "/new", c.target, c.overwrite);
        failed = server.num_calls() - before > call;
        server.Heal();
        const Found found = Look(*Machine(server).fs, c.target);
        if (status.ok()) EXPECT_EQ(found, Found::kNew);
        EXPECT_NE(found, c.overwrite ? Found::kNothing : Found::kOld);
      }
    }
  }
}

std::vector<absl::Status> SaveOnRanks(FileSystem& fs, absl::string_view path,
                                      const SampleTensor& tensor,
                                      bool overwrite) {
  return RunRanks(3, [&](Coordinator& coordinator) {
    SampleState state;
    const int64_t rank = coordinator.rank();
    state.Add(tensor, {{2 * rank, 0}, {2, 5}});
    return Save(fs, path, state.state(), coordinator, {.overwrite = overwrite});
  });
}

TEST(StoreDestination, RanksSaveTogether) {
  SimObjectServer server;
  Machine machine(server);
  const SampleTensor first("t", DType::kFloat32, {6, 5});
  const SampleTensor second("u", DType::kFloat32, {6, 5});
  for (const absl::Status& status :
       SaveOnRanks(*machine.fs, "s3://bucket/step-1", first, false)) {
    EXPECT_OK(status);
  }
  EXPECT_EQ(LoadBytes(*machine.fs, "s3://bucket/step-1", "t", first.dtype,
                      first.shape),
            first.bytes);
  for (const absl::Status& status :
       SaveOnRanks(*machine.fs, "s3://bucket/step-1", second, true)) {
    EXPECT_OK(status);
  }
  EXPECT_EQ(LoadBytes(*machine.fs, "s3://bucket/step-1", "u", second.dtype,
                      second.shape),
            second.bytes);
  EXPECT_EQ(server.num_objects(), 5u);  // three files, digests, index
}

TEST(StoreDestination, OfTwoWritersOneCommits) {
  SimObjectServer server;
  Machine machine(server);
  for (const bool overwrite : {false, true}) {
    const std::string path = absl::StrCat("s3://bucket/", overwrite);
    if (overwrite) {
      ASSERT_OK(ConvertCheckpoint(*machine.fs, "/old", path, {}).status());
    }
    ConvertOptions options;
    options.overwrite = overwrite;
    options.on_plan = [&](const ConvertPlan&) {
      Machine other(server);
      ConvertOptions theirs;
      theirs.overwrite = overwrite;
      EXPECT_OK(ConvertCheckpoint(*other.fs, "/new", path, std::move(theirs))
                    .status());
    };
    EXPECT_THAT(
        ConvertCheckpoint(*machine.fs, "/old", path, std::move(options)),
        StatusIs(kAlreadyExists, HasSubstr("another program")));
    ExpectSame(*machine.fs, "/new", path);
  }
  // the loser removed the objects that it had put
  EXPECT_EQ(server.num_objects(), 2u * 3);
}

// Another writer is faster: the first files stay, unless they may be replaced.
TEST(StoreDestination, KeepsObjectsThatAppearInTheMeantime) {
  for (const bool has_conditions : {true, false}) {
    SimObjectServer server({.has_conditions = has_conditions});
    Machine machine(server);
    for (const Target& target : kTargets) {
      SCOPED_TRACE(absl::StrCat(target.path, " ", has_conditions));
      ConvertOptions options;
      if (target.max_file_bytes > 0) {
        options.to = Format::kSafetensors;
        options.max_shard_bytes = target.max_file_bytes;
      }
      options.on_plan = [&](const ConvertPlan&) {
        Machine other(server);
        EXPECT_OK(Write(*other.fs, "/new", target, false));
      };
      const uint64_t before = server.num_objects();
      EXPECT_THAT(ConvertCheckpoint(*machine.fs, "/old", target.path,
                                    std::move(options)),
                  StatusIs(kAlreadyExists));
      ExpectSame(*machine.fs, "/new", target.path);
      EXPECT_GT(server.num_objects(), before);
      EXPECT_EQ(server.num_uploads(), 0u);
    }
  }
}

TEST(StoreDestination, RefusesAServerWithoutConditionsBeforePayload) {
  SimObjectServer server({.refuses_conditions = true});
  Machine machine(server);
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.path);
    EXPECT_THAT(Write(*machine.fs, "/new", target, false),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("would not be accepted")));
    EXPECT_EQ(server.most_bytes_in_flight(), 0u);
    EXPECT_EQ(server.num_objects(), 0u);
    EXPECT_EQ(server.num_uploads(), 0u);
  }
  // A file that may be replaced needs no condition.
  EXPECT_OK(
      Write(*machine.fs, "/new", {"s3://bucket/run/one.safetensors", 0}, true));
}

TEST(StoreDestination, AWriterThatIsRefusedRemovesItsFiles) {
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.path);
    bool failed = true;
    for (uint64_t call = 0; failed; ++call) {
      SimObjectServer server;
      Machine machine(server);
      server.FailCall(call, absl::PermissionDeniedError("denied"));
      const absl::Status status =
          Write(*machine.fs, "/new", target, /*overwrite=*/false);
      failed = server.num_calls() > call;
      if (status.ok()) continue;  // only the removal of litter may fail
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied));
      EXPECT_EQ(server.num_objects(), 0u) << call;
      EXPECT_EQ(server.num_uploads(), 0u) << call;
    }
  }
}

TEST(StoreDestination, MemoryInFlightStaysInTheBudget) {
  SimObjectServer server;
  Machine machine(server);
  SaveAll(*machine.fs, "/large",
          {SampleTensor("w", DType::kFloat32, {32000, 1000})});
  for (const uint64_t memory : {uint64_t{32} << 20, uint64_t{64} << 20}) {
    ConvertOptions options;
    options.overwrite = true;
    options.memory_bytes = memory;
    ASSERT_OK(ConvertCheckpoint(*machine.fs, "/large", "s3://bucket/l",
                                std::move(options))
                  .status());
    EXPECT_LE(server.most_bytes_in_flight(), memory);
  }
}

}  // namespace
}  // namespace dcp
