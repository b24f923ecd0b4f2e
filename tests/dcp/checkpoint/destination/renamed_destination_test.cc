// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/renamed_destination.h"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/destination/destination_lock.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
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
  ASSERT_OK(WriteFile(fs, destination.FilePath(name), bytes));
  destination.Created(name);
}

TEST(RenamedDestination, DcpIndexAppearsLast) {
  SimStorage fs;
  ASSERT_OK_AND_ASSIGN(auto destination,
                       PlanDestination(fs, "/c/", Kind::kDcpDirectory, false));
  EXPECT_EQ(destination->NextDataFileName(0), "__0_0.distcp");
  EXPECT_EQ(destination->NextDataFileName(0), "__0_1.distcp");
  EXPECT_EQ(destination->NextDataFileName(3), "__3_0.distcp");
  EXPECT_THAT(Names(fs, "/c"), ElementsAre(kLockName));
  ASSERT_OK(destination->Begin());
  Add(fs, *destination, "__0_0.distcp", "data");
  EXPECT_THAT(Names(fs, "/c"), ElementsAre(kLockName, "__0_0.distcp"));
  ASSERT_OK(destination->Commit(".metadata", "index", ".digests-1",
                                {{.file = "__0_0.distcp"}}));
  destination.reset();
  EXPECT_THAT(Names(fs, "/c"),
              ElementsAre(".digests-1", ".metadata", "__0_0.distcp"));
}

TEST(RenamedDestination, RemovesOldFilesAfterTheCommit) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  for (const auto* name : {"__0_0.distcp", "__7.metadata", ".metadata",
                           ".metadata.tmp", ".digests-0", "notes"}) {
    ASSERT_OK(WriteFile(fs, JoinPath("/c", name), "old"));
  }
  EXPECT_THAT(PlanDestination(fs, "/c", Kind::kDcpDirectory, false),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(auto destination,
                       PlanDestination(fs, "/c", Kind::kDcpDirectory, true));
  ASSERT_OK(destination->Begin());
  const std::string name = destination->NextDataFileName(0);
  EXPECT_EQ(name, "__0_1.distcp");
  Add(fs, *destination, name, "new");
  EXPECT_EQ(Names(fs, "/c").size(), 8u);
  ASSERT_OK(destination->Commit(".metadata", "new", "", {}));
  destination.reset();
  EXPECT_THAT(Names(fs, "/c"),
              ElementsAre(".metadata", "__0_1.distcp", "notes"));
  EXPECT_THAT(ReadFile(fs, "/c/.metadata", 10, true),
              testing::IsOkAndHolds("new"));
}

TEST(RenamedDestination, ReplacesASafetensorsCheckpointByADcpOne) {
  for (const bool is_export : {false, true}) {
    SimStorage fs;
    ASSERT_OK(fs.MakeDirectory("/c"));
    for (const auto* name :
         {"model-00001-of-00001.safetensors", "model.safetensors.index.json"}) {
      ASSERT_OK(WriteFile(fs, JoinPath("/c", name), "old"));
    }
    if (is_export) {
      ASSERT_OK(WriteFile(fs, "/c/.metadata", "old"));
    }
    ASSERT_OK_AND_ASSIGN(auto destination,
                         PlanDestination(fs, "/c", Kind::kDcpDirectory, true));
    ASSERT_OK(destination->Begin());
    Add(fs, *destination, destination->NextDataFileName(0), "new");
    EXPECT_EQ(ReadFile(fs, "/c/model.safetensors.index.json", 10, true)
                  .value_or("gone"),
              "old")
        << "until the new one is there";
    ASSERT_OK(destination->Commit(".metadata", "new", "", {}));
    destination.reset();
    if (is_export) {
      EXPECT_EQ(Names(fs, "/c").size(), 4u) << "what lies next to it stays";
    } else {
      EXPECT_THAT(Names(fs, "/c"), ElementsAre(".metadata", "__0_0.distcp"));
    }
  }
}

TEST(RenamedDestination, LeavesNothingWithoutACommit) {
  for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory, Kind::kFile}) {
    SimStorage fs;
    {
      ASSERT_OK_AND_ASSIGN(const auto destination,
                           PlanDestination(fs, "/c", kind, false));
      ASSERT_OK(destination->Begin());
      Add(fs, *destination, "__0_0.distcp", "data");
    }
    EXPECT_THAT(Names(fs, "/"), IsEmpty());
  }
}

TEST(RenamedDestination, OnlyTheFirstRankRemovesFiles) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  {
    const auto attached = AttachToDestination(fs, "/c");
    Add(fs, *attached, "__1_0.distcp", "data");
  }
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("__1_0.distcp"));
}

TEST(RenamedDestination, RemovesLeftoversOfAnInterruptedRun) {
  SimStorage fs;
  // Leftovers from this version and an earlier one. The one in between belongs
  // to another destination, and the last to a conversion that may still be
  // running.
  for (const auto* left : {"/.c.partial", "/.c.01234567-89ab.tmp"}) {
    ASSERT_OK(fs.MakeDirectory(left));
    ASSERT_OK(WriteFile(fs, JoinPath(left, "model.safetensors"), "half"));
  }
  for (const auto* left : {"/.c.pt.partial", "/.c.pt.01234567-89ab.tmp",
                           "/.c.pt.x.tmp", "/.c.pt.01234567-89ab.partial"}) {
    ASSERT_OK(WriteFile(fs, left, "half"));
  }
  for (const auto& [path, kind] : std::vector<std::pair<std::string, Kind>>{
           {"/c", Kind::kDirectory}, {"/c.pt", Kind::kFile}}) {
    ASSERT_OK_AND_ASSIGN(const auto destination,
                         PlanDestination(fs, path, kind, false));
    ASSERT_OK(destination->Begin());
    Add(fs, *destination, "model.safetensors", "whole");
    ASSERT_OK(destination->Commit("", "", "", {}));
  }
  EXPECT_THAT(Names(fs, "/"), ElementsAre(".c.pt.01234567-89ab.partial",
                                          ".c.pt.x.tmp", "c", "c.pt"));
  EXPECT_THAT(ReadFile(fs, "/c/model.safetensors", 10, true),
              testing::IsOkAndHolds("whole"));
  EXPECT_THAT(ReadFile(fs, "/c.pt", 10, true), testing::IsOkAndHolds("whole"));
}

TEST(RenamedDestination, RemovesFoldersOfAnInterruptedRun) {
  SimStorage fs;
  const std::string left = "/.c.01234567-89ab.tmp";
  for (const char* folder : {"", "/optimizer_0", "/pytorch_model_fsdp_0"}) {
    ASSERT_OK(fs.MakeDirectory(left + folder));
  }
  for (const char* file :
       {"/optimizer_0/__0_0.distcp", "/optimizer_0/.metadata",
        "/pytorch_model_fsdp_0/__0_0.distcp"}) {
    ASSERT_OK(WriteFile(fs, left + file, "half"));
  }
  // A replaced model, and a user's files.
  ASSERT_OK(fs.MakeDirectory("/.c.12345678-9abc.tmp"));
  ASSERT_OK(WriteFile(fs, "/.c.12345678-9abc.tmp/m.safetensors", "old"));
  ASSERT_OK(fs.MakeDirectory("/.c.12345678-9abc.tmp/mine"));
  ASSERT_OK(WriteFile(fs, "/.c.12345678-9abc.tmp/mine/.metadata", "mine"));
  ASSERT_OK_AND_ASSIGN(const auto destination,
                       PlanDestination(fs, "/c", Kind::kFolders, false));
  ASSERT_OK(destination->Begin());
  ASSERT_OK(destination->Commit("", "", "", {}));
  EXPECT_THAT(Names(fs, "/"),
              ElementsAre(".c.12345678-9abc.tmp", ".c.lock", "c"));
  EXPECT_THAT(Names(fs, "/.c.12345678-9abc.tmp"), ElementsAre("mine"));
}

TEST(RenamedDestination, ShortensLongNamesInTemporaryNames) {
  const std::string name(240, 'n');
  EXPECT_EQ(ShortName("model"), "model");
  EXPECT_EQ(ShortName(name), ShortName(name));
  EXPECT_NE(ShortName(name), ShortName(name + "n"));
  for (const size_t size : {200u, 223u, 224u, 240u, 255u}) {
    const std::string path = "/d/" + std::string(size, 'n');
    EXPECT_LE(BaseName(DestinationLock::PathNextTo(path)).size(), 255u);
    const std::string sibling = SiblingPath(path, "01234567-89ab-cdef", "tmp");
    EXPECT_LE(BaseName(sibling).size(), 255u);
    EXPECT_TRUE(IsLeftSiblingName(BaseName(sibling), BaseName(path)));
  }
  // A two-byte character is not cut.
  std::string umlauts = "x";
  while (umlauts.size() < 239) umlauts += "\xc3\xa4";
  const std::string cut = ShortName(umlauts);
  EXPECT_EQ(cut[cut.find('~') - 1], '\xa4');
}

TEST(RenamedDestination, ExchangesAnExistingDirectory) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  ASSERT_OK(WriteFile(fs, "/c/old.safetensors", "old"));
  ASSERT_OK_AND_ASSIGN(auto destination,
                       PlanDestination(fs, "/c", Kind::kDirectory, true));
  ASSERT_OK(destination->Begin());
  Add(fs, *destination, "model.safetensors", "new");
  EXPECT_THAT(Names(fs, "/c"), ElementsAre(kLockName, "old.safetensors"));
  ASSERT_OK(destination->Commit("", "", "", {}));
  destination.reset();
  EXPECT_THAT(Names(fs, "/c"), ElementsAre("model.safetensors"));
  EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
}

TEST(RenamedDestination, RefusesToLoseForeignFiles) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  ASSERT_OK(WriteFile(fs, "/c/model.safetensors", "old"));
  ASSERT_OK(WriteFile(fs, "/c/thesis.tex", "years"));
  EXPECT_THAT(PlanDestination(fs, "/c", Kind::kDirectory, true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("a file"), HasSubstr("thesis.tex"))));
  EXPECT_THAT(PlanDestination(fs, "/c", Kind::kFile, true),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(PlanDestination(fs, "/c/thesis.tex", Kind::kDcpDirectory, true),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(PlanDestination(fs, "", Kind::kFile, true),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RenamedDestination, TreatsAnEmptyDirectoryAsAbsent) {
  for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory}) {
    SimStorage fs;
    ASSERT_OK(fs.MakeDirectory("/c"));
    ASSERT_OK_AND_ASSIGN(auto destination,
                         PlanDestination(fs, "/c", kind, false));
    ASSERT_OK(destination->Begin());
    Add(fs, *destination, "x", "new");
    ASSERT_OK(destination->Commit(kDcpMetadataName, "text", "", {}));
    destination.reset();
    EXPECT_THAT(Names(fs, "/c"), ElementsAre(".metadata", "x"));
    EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
  }
}

TEST(RenamedDestination, AllowsOneWriterAtATime) {
  // A DCP writer is in the directory; the others lock a file next to it.
  for (const Kind first : {Kind::kDcpDirectory, Kind::kDirectory}) {
    for (const Kind second : {Kind::kDcpDirectory, Kind::kDirectory}) {
      SimStorage fs;
      ASSERT_OK(fs.MakeDirectory("/c"));
      ASSERT_OK_AND_ASSIGN(
          auto holder, PlanDestination(fs, "/c", first, false, {}, "first"));
      const std::vector<std::string> names = Names(fs, "/c");
      EXPECT_THAT(PlanDestination(fs, "/c", second, true, {}, "second"),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("/c is being written by first")));
      EXPECT_EQ(Names(fs, "/c"), names);
      holder.reset();
      EXPECT_OK(PlanDestination(fs, "/c", second, false));
      EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
      EXPECT_THAT(Names(fs, "/c"), IsEmpty());
    }
  }
  SimStorage fs;
  ASSERT_OK_AND_ASSIGN(const auto holder,
                       PlanDestination(fs, "/c.pt", Kind::kFile, false));
  EXPECT_THAT(PlanDestination(fs, "/c.pt", Kind::kFile, true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/c.pt is being written by a writer")));
  EXPECT_OK(PlanDestination(fs, "/d.pt", Kind::kFile, false));
}

// The first writer was killed; the second may begin again without overwrite,
// and leaves nothing when it fails itself.
TEST(RenamedDestination, GoesIntoTheDirectoryOfADeadWriter) {
  std::string text;
  {
    SimStorage fs;
    ASSERT_OK_AND_ASSIGN(const auto killed,
                         PlanDestination(fs, "/c", Kind::kDcpDirectory, false));
    ASSERT_OK_AND_ASSIGN(text, ReadFile(fs, "/c/.writer.lock", 1000, true));
  }
  for (const bool fails : {false, true}) {
    for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory}) {
      SimStorage fs;
      ASSERT_OK(fs.MakeDirectory("/c"));
      for (const auto* left :
           {"__0_0.distcp", ".digests-1", ".metadata.01234567-89ab.tmp"}) {
        ASSERT_OK(WriteFile(fs, JoinPath("/c", left), "half"));
      }
      EXPECT_THAT(PlanDestination(fs, "/c", kind, false),
                  StatusIs(absl::StatusCode::kAlreadyExists));
      ASSERT_OK(WriteFile(fs, "/c/.writer.lock", text));
      ASSERT_OK_AND_ASSIGN(auto next, PlanDestination(fs, "/c", kind, false));
      ASSERT_OK(next->Begin());
      Add(fs, *next, "__0_0.distcp", "new");
      if (!fails) {
        ASSERT_OK(next->Commit(kDcpMetadataName, "index", "", {}));
      }
      next.reset();
      if (!fails) {
        EXPECT_THAT(Names(fs, "/"), ElementsAre("c"));
        EXPECT_THAT(Names(fs, "/c"), ElementsAre(".metadata", "__0_0.distcp"));
      } else if (kind == Kind::kDcpDirectory) {
        EXPECT_THAT(Names(fs, "/"), IsEmpty());
      } else {
        EXPECT_THAT(Names(fs, "/c"), IsEmpty());
      }
    }
  }
}

TEST(RenamedDestination, KeepsTheCheckpointOfAWriterThatDiedAfterItsCommit) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/c"));
  ASSERT_OK(WriteFile(fs, "/c/.writer.lock",
                      "tessera lock\nmade files\nmade directory\n"));
  ASSERT_OK(WriteFile(fs, "/c/.metadata", "index"));
  ASSERT_OK(WriteFile(fs, "/c/__0_0.distcp", "data"));
  EXPECT_THAT(PlanDestination(fs, "/c", Kind::kDcpDirectory, false),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Names(fs, "/c"), ElementsAre(".metadata", "__0_0.distcp"));
}

TEST(RenamedDestination, PlanningChangesNothing) {
  SimStorage fs;
  for (const Kind kind : {Kind::kDcpDirectory, Kind::kDirectory, Kind::kFile}) {
    EXPECT_OK(LookAtDestination(fs, "/c", kind, false));
    EXPECT_THAT(Names(fs, "/"), IsEmpty());
    for (const bool looks : {false, true}) {
      EXPECT_THAT(looks ? LookAtDestination(fs, "/no/c", kind, false)
                        : PlanDestination(fs, "/no/c", kind, false),
                  StatusIs(absl::StatusCode::kNotFound,
                           HasSubstr("no directory /no for /no/c")));
    }
  }
}

// On the operating system's file system, which has features that a simulation
// lacks.
TEST(RenamedDestination, ReplacesOnlyFilesThatCanBeCheckpoints) {
  const TempDir dir;
  const auto fs = NewPosixFileSystem();
  dir.WriteFile("notes.pt", "years of work");
  dir.WriteFile("empty.pt", "");
  dir.WriteFile("slides.pt", std::string("PK\3\4") + std::string(22, '\0') +
                                 std::string("\x0b\0\0\0", 4) + "slides/1.xml");
  ASSERT_EQ(mkfifo(dir.Join("pipe.pt").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(dir.Join("real").c_str(), 0700), 0);
  ASSERT_EQ(symlink("real", dir.Join("link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", dir.Join("broken").c_str()), 0);
  const struct {
    std::string path;
    Kind kind;
    std::string says;
  } refused[] = {
      {dir.Join("notes.pt"), Kind::kFile, "neither a safetensors nor"},
      {dir.Join("slides.pt"), Kind::kFile, "neither a safetensors nor"},
      {dir.Join("pipe.pt"), Kind::kFile, "is a pipe, a socket or a device"},
      {"/dev/null", Kind::kFile, "is a pipe, a socket or a device"},
      {"/dev/null", Kind::kDcpDirectory, "is a pipe, a socket or a device"},
      {dir.Join("link"), Kind::kFile, "is a symbolic link, which"},
      {dir.Join("link"), Kind::kDirectory, "is a symbolic link, which"},
      {dir.Join("broken"), Kind::kDcpDirectory,
       "that does not lead to a directory"}};
  for (const auto& [path, kind, says] : refused) {
    EXPECT_THAT(
        PlanDestination(*fs, path, kind, true),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(says)));
  }
  EXPECT_OK(PlanDestination(*fs, dir.Join("empty.pt"), Kind::kFile, true));
  ASSERT_OK_AND_ASSIGN(
      auto through_link,
      PlanDestination(*fs, dir.Join("link"), Kind::kDcpDirectory, false));
  ASSERT_OK(through_link->Begin());
  Add(*fs, *through_link, "__0_0.distcp", "data");
  ASSERT_OK(through_link->Commit(kDcpMetadataName, "index", "", {}));
  // The path does not matter, because the lock is in the directory.
  EXPECT_THAT(PlanDestination(*fs, dir.Join("real"), Kind::kDcpDirectory, true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is being written")));
  through_link.reset();
  EXPECT_THAT(Names(*fs, dir.Join("real")),
              ElementsAre(".metadata", "__0_0.distcp"));
  EXPECT_THAT(Names(*fs, dir.path()),
              ElementsAre("broken", "empty.pt", "link", "notes.pt", "pipe.pt",
                          "real", "slides.pt"));
}

}  // namespace
}  // namespace dcp
