// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/rank_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<DirectoryEntry> Entries(const std::vector<std::string>& names) {
  std::vector<DirectoryEntry> entries;
  for (const std::string& name : names) entries.push_back({.name = name});
  return entries;
}

// "part: first file ... (number)" for each family.
std::vector<std::string> Summary(const std::vector<RankFiles>& families) {
  std::vector<std::string> lines;
  for (const RankFiles& family : families) {
    lines.push_back(absl::StrCat(family.part, ": ", family.names.front(), " (",
                                 family.names.size(), ")"));
  }
  return lines;
}

TEST(RankFiles, EachProgramsNamesAreKnown) {
  const struct {
    std::vector<std::string> names;
    std::string summary;
  } cases[] = {
      {{"model_world_size_2_rank_1.pt", "model_world_size_2_rank_0.pt"},
       "model: model_world_size_2_rank_0.pt (2)"},
      {{"optim_world_size_1_rank_0.pt"},
       "optimizer: optim_world_size_1_rank_0.pt (1)"},
      {{"extra_state_world_size_1_rank_0.pt"},
       "extra: extra_state_world_size_1_rank_0.pt (1)"},
      {{"pytorch_model_fsdp_0_rank0.bin", "pytorch_model_fsdp_0_rank1.bin"},
       "model: pytorch_model_fsdp_0_rank0.bin (2)"},
      {{"optimizer_rank0.bin"}, "optimizer: optimizer_rank0.bin (1)"},
      {{"checkpoint_0.pt", "checkpoint_1.pt"}, ": checkpoint_0.pt (2)"},
      {{"model_final.rank_0.pth"}, ": model_final.rank_0.pth (1)"},
      {{"ep1-ba2-rank0.pt", "notes.txt"}, ": ep1-ba2-rank0.pt (1)"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.names[0]);
    ASSERT_OK_AND_ASSIGN(const std::vector<RankFiles> families,
                         FindRankFiles(Entries(test.names)));
    EXPECT_THAT(Summary(families), ElementsAre(test.summary));
  }
}

TEST(RankFiles, RanksAreOrderedAsNumbers) {
  std::vector<std::string> names;
  for (int rank = 0; rank < 11; ++rank) {
    names.push_back(absl::StrCat("w.rank_", rank, ".pt"));
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  ASSERT_OK_AND_ASSIGN(const std::vector<RankFiles> families,
                       FindRankFiles(Entries(sorted)));
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].names, names);
}

TEST(RankFiles, NumberedItemsCountOnlyNextToTheirIndex) {
  EXPECT_THAT(*FindRankFiles(Entries({"model_0.pt", "model_1.pt"})), IsEmpty());
  ASSERT_OK_AND_ASSIGN(
      const std::vector<RankFiles> families,
      FindRankFiles(Entries({"app_0.pt", "metadata.pkl", "model_0.pt"})));
  EXPECT_THAT(Summary(families),
              ElementsAre("app: app_0.pt (1)", "model: model_0.pt (1)"));
}

TEST(RankFiles, AMissingRankIsNamed) {
  EXPECT_THAT(FindRankFiles(Entries({"model_world_size_8_rank_0.pt",
                                     "model_world_size_8_rank_1.pt",
                                     "model_world_size_8_rank_6.pt"})),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("model_world_size_8_rank_{rank}.pt"),
                             HasSubstr("3 of 8"), HasSubstr("0-1, 6"))));
  EXPECT_THAT(FindRankFiles(Entries({"w.rank_1.pt"})),
              StatusIs(StatusCode::kNotFound, HasSubstr("1 of 2")));
}

TEST(RankFiles, APatternNamesFilesOfAnyName) {
  const std::vector<DirectoryEntry> entries =
      Entries({"a(0).th", "a(1).th", "a(x).th"});
  ASSERT_OK_AND_ASSIGN(const std::vector<RankFiles> families,
                       FindRankFiles(entries, "a({rank}).th"));
  ASSERT_EQ(families.size(), 1u);
  EXPECT_THAT(families[0].names, ElementsAre("a(0).th", "a(1).th"));
  EXPECT_THAT(FindRankFiles(entries, "a.th"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("{rank}")));
  EXPECT_THAT(FindRankFiles(entries, "b{rank}"),
              StatusIs(StatusCode::kNotFound, HasSubstr("b{rank}")));
}

}  // namespace
}  // namespace dcp
