#include "dcp/checkpoint/commit.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Destination::Kind;

std::vector<std::string> Names(FileSystem& fs, absl::string_view path) {
  std::vector<std::string> names;
  const auto entries = fs.List(path);
  EXPECT_OK(entries);
  if (!entries.ok()) return names;
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

// Writes data file `name` as a transfer does.
void Add(FileSystem& fs, Destination& destination, absl::string_view name,
         absl::string_view bytes) {
  ASSERT_OK(WriteFile(fs, destination.PathOf(name), bytes));
  destination.Created(name);
}

TEST(Commit, OfADcpDirectoryMakesTheIndexAppearLast) {
  SimStorage fs;
  ASSERT_OK_AND_ASSIGN(
      const auto destination,
      Destination::Plan(fs, "/c/", Kind::kDcpDirectory, false));
  EXPECT_EQ(destination->NextDataFileName(0), "__0_0.distcp");
  EXPECT_EQ(destination->NextDataFileName(0), "__0_1.distcp");
  EXPECT_EQ(destination->NextDataFileName(3), "__3_0.distcp");
  EXPECT_THAT(Names(fs, "/"), IsEmpty());
  ASSERT_OK(destination->Begin());
  Add(fs, *destination, "__0_0.distcp", "data");
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("__0_0.distcp"));
  ASSERT_OK(destination->Commit(".metadata", "index", ".digests-1",
                                {{.file = "__0_0.distcp"}}));
  EXPECT_THAT(Names(fs, "/c"),
              ElementsAre(".digests-1", ".metadata", "__0_0.distcp"));
}

TEST(Commit, ReplacesTheOldFilesOnlyAfterwards) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  for (const auto* name : {"__0_0.distcp", "__7.metadata", ".metadata",
                           ".metadata.tmp", ".digests-0", "notes"}) {
    ASSERT_OK(WriteFile(fs, JoinPath("/c", name), "old"));
  }
  EXPECT_THAT(Destination::Plan(fs, "/c", Kind::kDcpDirectory, false),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(const auto destination,
                       Destination::Plan(fs, "/c", Kind::kDcpDirectory, true));
  ASSERT_OK(destination->Begin());
  const std::string name = destination->NextDataFileName(0);
  EXPECT_EQ(name, "__0_1.distcp");
  Add(fs, *destination, name, "new");
  EXPECT_EQ(Names(fs, "/c").size(), 7u);
  ASSERT_OK(destination->Commit(".metadata", "new", "", {}));
  EXPECT_THAT(Names(fs, "/c"),
              ElementsAre(".metadata", "__0_1.distcp", "notes"));
  EXPECT_THAT(ReadFile(fs, "/c/.metadata", 10, true),
              testing::IsOkAndHolds("new"));
}

TEST(Commit, LeavesNothingWithoutIt) {
  for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory, Kind::kFile}) {
    SimStorage fs;
    {
      ASSERT_OK_AND_ASSIGN(const auto destination,
                           Destination::Plan(fs, "/c", kind, false));
      ASSERT_OK(destination->Begin());
      Add(fs, *destination, "__0_0.distcp", "data");
    }
    EXPECT_THAT(Names(fs, "/"), IsEmpty());
  }
}

TEST(Commit, AnAttachedRankLeavesRemovalToTheFirst) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  {
    const auto attached = Destination::Attach(fs, "/c");
    Add(fs, *attached, "__1_0.distcp", "data");
  }
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("__1_0.distcp"));
}

TEST(Commit, ClearsWhatAnInterruptedRunLeft) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/.c.partial"));
  ASSERT_OK(WriteFile(fs, "/.c.partial/model.safetensors", "half"));
  ASSERT_OK(WriteFile(fs, "/.c.pt.partial", "half"));
  for (const auto& [path, kind] : std::vector<std::pair<std::string, Kind>>{
           {"/c", Kind::kDirectory}, {"/c.pt", Kind::kFile}}) {
    ASSERT_OK_AND_ASSIGN(const auto destination,
                         Destination::Plan(fs, path, kind, false));
    ASSERT_OK(destination->Begin());
    Add(fs, *destination, "model.safetensors", "whole");
    ASSERT_OK(destination->Commit("", "", "", {}));
  }
  EXPECT_THAT(Names(fs, "/"), ElementsAre("c", "c.pt"));
  EXPECT_THAT(ReadFile(fs, "/c/model.safetensors", 10, true),
              testing::IsOkAndHolds("whole"));
  EXPECT_THAT(ReadFile(fs, "/c.pt", 10, true), testing::IsOkAndHolds("whole"));
}

TEST(Commit, ExchangesADirectoryThatIsThere) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  ASSERT_OK(WriteFile(fs, "/c/old.safetensors", "old"));
  ASSERT_OK_AND_ASSIGN(const auto destination,
                       Destination::Plan(fs, "/c", Kind::kDirectory, true));
  ASSERT_OK(destination->Begin());
  Add(fs, *destination, "model.safetensors", "new");
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("old.safetensors"));
  ASSERT_OK(destination->Commit("", "", "", {}));
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("model.safetensors"));
  EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
}

TEST(Commit, RefusesToLoseForeignFiles) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  ASSERT_OK(WriteFile(fs, "/c/model.safetensors", "old"));
  ASSERT_OK(WriteFile(fs, "/c/thesis.tex", "years"));
  EXPECT_THAT(Destination::Plan(fs, "/c", Kind::kDirectory, true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("1 files"), HasSubstr("thesis.tex"))));
  EXPECT_THAT(Destination::Plan(fs, "/c", Kind::kFile, true),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Destination::Plan(fs, "/c/thesis.tex", Kind::kDcpDirectory, true),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Destination::Plan(fs, "", Kind::kFile, true),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Commit, TakesAnEmptyDirectoryForNothing) {
  for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory}) {
    SimStorage fs;
    ASSERT_OK(fs.MakeDirectory("/c"));
    ASSERT_OK_AND_ASSIGN(const auto destination,
                         Destination::Plan(fs, "/c", kind, false));
    ASSERT_OK(destination->Begin());
    Add(fs, *destination, "x", "new");
    ASSERT_OK(destination->Commit("index", "text", "", {}));
    EXPECT_THAT(Names(fs, "/c"), ElementsAre("index", "x"));
    EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
  }
}

}  // namespace
}  // namespace dcp
