// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/destination_lock.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DestinationLock, LiesNextToTheWritersFiles) {
  EXPECT_EQ(DestinationLock::PathInside("/a/c"), "/a/c/.writer.lock");
  EXPECT_EQ(DestinationLock::PathNextTo("/a/c.pt"), "/a/.c.pt.lock");
  EXPECT_EQ(DestinationLock::PathNextTo("c.pt"), "./.c.pt.lock");
}

TEST(DestinationLock, NamesTheDestinationAndTheWriter) {
  SimStorage disk;
  ASSERT_OK(disk.MakeDirectory("/c"));
  for (const auto& [path, guarded] :
       {std::pair(DestinationLock::PathInside("/c"), "/c is being written by"),
        std::pair(DestinationLock::PathNextTo("/x.pt"),
                  "/x.pt is being written by")}) {
    ASSERT_OK_AND_ASSIGN(
        auto first, DestinationLock::Take(disk, path, "dcp-convert reshard"));
    EXPECT_THAT(DestinationLock::Take(disk, path, "a save"),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(guarded),
                               HasSubstr("dcp-convert reshard, process "),
                               HasSubstr("run again when it has ended"))));
    first.reset();
    EXPECT_THAT(disk.Stat(path), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_OK(DestinationLock::Take(disk, path, "a save"));
  }
  EXPECT_THAT(DestinationLock::Take(disk, "/no/.writer.lock", "a save"),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(DestinationLock, ListsTheFilesOfADeadHolder) {
  SimStorage fs;
  ASSERT_OK_AND_ASSIGN(auto killed,
                       DestinationLock::Take(fs, "/.writer.lock", "a save"));
  EXPECT_FALSE(killed->left().files);
  killed->Record({.files = true, .directory = true});
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       ReadFile(fs, "/.writer.lock", 1000, true));
  killed.reset();
  ASSERT_OK(WriteFile(fs, "/.writer.lock", text));
  ASSERT_OK_AND_ASSIGN(const auto next,
                       DestinationLock::Take(fs, "/.writer.lock", "a save"));
  EXPECT_TRUE(next->left().files);
  EXPECT_TRUE(next->left().directory);
}

TEST(DestinationLock, UsesTheFileWithoutFlockAndGivesAdvice) {
  SimStorage fs({.has_locks = false});
  ASSERT_OK_AND_ASSIGN(auto first,
                       DestinationLock::Take(fs, "/.c.lock", "a save"));
  first.reset();
  EXPECT_OK(DestinationLock::Take(fs, "/.c.lock", "a save"));
  ASSERT_OK(WriteFile(fs, "/.c.lock", "tessera lock\nwriter a save\n"));
  EXPECT_THAT(DestinationLock::Take(fs, "/.c.lock", "a save"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("/c is locked by a save"),
                             HasSubstr("if that process has ended, remove "
                                       "/.c.lock"))));
}

}  // namespace
}  // namespace dcp
