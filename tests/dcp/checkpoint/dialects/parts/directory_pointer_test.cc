// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/parts/directory_pointer.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::Disk;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

constexpr absl::string_view kIteration = "latest_checkpointed_iteration.txt";

SourceDirectory List(const TempDir& dir) {
  auto directory = ListDirectory(Disk(), dir.path());
  EXPECT_OK(directory);
  return *std::move(directory);
}

// "name to target", "none" or an error.
absl::StatusOr<std::string> Text(
    const absl::StatusOr<std::optional<DirectoryPointer>>& pointer) {
  if (!pointer.ok()) return pointer.status();
  if (!pointer->has_value()) return "none";
  return absl::StrCat((*pointer)->name, " to ", (*pointer)->target);
}

absl::StatusOr<std::string> Pointer(const TempDir& dir) {
  return Text(FindPointer(List(dir), {}));
}

TEST(DirectoryPointer, AFileNamesADirectory) {
  const TempDir dir;
  dir.WriteFile("step-3/x", "");
  ASSERT_OK_AND_ASSIGN(std::string text, Pointer(dir));
  EXPECT_EQ(text, "none");
  dir.WriteFile("latest", "step-3\n");
  ASSERT_OK_AND_ASSIGN(text, Pointer(dir));
  EXPECT_EQ(text, "latest to step-3");
}

TEST(DirectoryPointer, ReadsIterationsOfMegatronAndByteCheckpoint) {
  const TempDir dir;
  dir.WriteFile(kIteration, "100");
  EXPECT_THAT(Pointer(dir), StatusIs(StatusCode::kNotFound,
                                     HasSubstr("no folder iter_0000100 or "
                                               "global_step_100")));
  dir.WriteFile("global_step_100/x", "");
  ASSERT_OK_AND_ASSIGN(std::string text, Pointer(dir));
  EXPECT_EQ(text, absl::StrCat(kIteration, " to global_step_100"));
  dir.WriteFile("iter_0000100/x", "");
  ASSERT_OK_AND_ASSIGN(text, Pointer(dir));
  EXPECT_EQ(text, absl::StrCat(kIteration, " to iter_0000100"));
  dir.WriteFile(kIteration, "release");
  EXPECT_THAT(Pointer(dir),
              StatusIs(StatusCode::kNotFound, HasSubstr("no folder release")));
  dir.WriteFile("release/x", "");
  ASSERT_OK_AND_ASSIGN(text, Pointer(dir));
  EXPECT_EQ(text, absl::StrCat(kIteration, " to release"));
}

TEST(DirectoryPointer, RefusesFilesThatNameSomethingElse) {
  for (const absl::string_view text : {"../x", "/etc", "", "..", "a/b"}) {
    const TempDir dir;
    dir.WriteFile("latest", text);
    EXPECT_THAT(Pointer(dir), StatusIs(StatusCode::kDataLoss,
                                       HasSubstr("the name of a folder")))
        << text;
  }
  for (const absl::string_view text :
       {"-1", "1e3", "99999999999999999999", "x"}) {
    const TempDir dir;
    dir.WriteFile(kIteration, text);
    EXPECT_THAT(Pointer(dir), StatusIs(StatusCode::kDataLoss,
                                       HasSubstr("a number or 'release'")))
        << text;
  }
  const TempDir dir;
  dir.WriteFile("latest", "step-4");
  EXPECT_THAT(Pointer(dir), StatusIs(StatusCode::kNotFound,
                                     HasSubstr("names step-4, which is not")));
}

TEST(DirectoryPointer, LinksLeadToTheSameDirectoryOnly) {
  const TempDir dir;
  dir.WriteFile("ep1-ba2/x", "");
  dir.WriteFile("ep1-ba2-rank0.pt", "");
  const std::string link = dir.Join("latest-rank0.pt");
  ASSERT_EQ(symlink("ep1-ba2", link.c_str()), 0);
  ASSERT_OK_AND_ASSIGN(std::string text, Text(FindRankLink(List(dir))));
  EXPECT_EQ(text, "latest-rank0.pt to ep1-ba2");
  ASSERT_EQ(unlink(link.c_str()), 0);
  ASSERT_EQ(symlink("ep1-ba2-rank0.pt", link.c_str()), 0);
  ASSERT_OK_AND_ASSIGN(text, Text(FindRankLink(List(dir))));
  EXPECT_EQ(text, "latest-rank0.pt to ep1-ba2-rank0.pt");
  ASSERT_EQ(unlink(link.c_str()), 0);
  for (const char* target : {"..", "/", "/etc/passwd", "ep1-ba2/x"}) {
    ASSERT_EQ(symlink(target, link.c_str()), 0);
    EXPECT_THAT(Text(FindRankLink(List(dir))),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("leads to another")))
        << target;
    ASSERT_EQ(unlink(link.c_str()), 0);
  }
  ASSERT_EQ(symlink("absent", link.c_str()), 0);
  EXPECT_THAT(Text(FindRankLink(List(dir))),
              StatusIs(StatusCode::kNotFound, HasSubstr("latest-rank0.pt")));
}

TEST(DirectoryPointer, FollowsALinkCalledLatest) {
  const TempDir dir;
  dir.WriteFile("step-3/x", "");
  ASSERT_EQ(symlink("step-3", dir.Join("latest").c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const std::string text, Pointer(dir));
  EXPECT_EQ(text, "latest to step-3");
  ASSERT_OK_AND_ASSIGN(const std::string none, Text(FindRankLink(List(dir))));
  EXPECT_EQ(none, "none");
}

}  // namespace
}  // namespace dcp
