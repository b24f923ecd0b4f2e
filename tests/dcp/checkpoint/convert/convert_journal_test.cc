// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_journal.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/files/digests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

WorkPlan JournaledSample() {
  return {.id = "01234567-89ab",
          .kind = Destination::Kind::kDirectory,
          .files = {"plain", "a name\nof two lines"},
          .pieces = {{.file = 0}, {.file = 1}},
          .journaled = JournaledPlan{.fingerprint = 0xfedcba9876543210,
                                     .made_directory = true,
                                     .index_before = "-"}};
}

TEST(ConvertJournal, RecordsAreReadAsTheyWereWritten) {
  const WorkPlan work = JournaledSample();
  const std::vector<ChunkDigest> digests = {
      {.file = work.files[1], .offset = 64, .length = 5, .digest = 7},
      {.file = work.files[1], .offset = 128, .length = 0, .digest = ~0ull}};
  ConvertPlan plan;
  plan.from = Format::kTorch;
  plan.to = Format::kSafetensors;
  plan.files = {{.name = "x y", .bytes = 12}};
  plan.num_tensors = 1;
  plan.num_objects = 2;
  plan.bytes_to_read = 3;
  plan.bytes_to_write = 4;
  plan.memory_bytes = 5;
  plan.num_lanes = 6;
  plan.check = {.checked = true,
                .num_crcs_checked = 7,
                .num_digests_checked = 8,
                .bytes_checked = 9,
                .num_items_unchecked = 10,
                .bytes_unchecked = 11};
  plan.cast_losses = {
      {.name = "a b", .dtype = DType::kFloat16, .num_beyond = 12}};
  const std::vector<NumBeyond> num_beyond = {{.payload = 3, .count = 12}};
  const auto read = ParseConvertRecords(
      {WritePlanRecord(work), WritePieceRecord({}), WritePlanRecord(work),
       WritePieceRecord(
           {.number = 1,
            .written = {.digests = digests, .num_beyond = num_beyond}}),
       WriteCommitRecord({.digest = 99, .plan = plan})});
  ASSERT_OK(read);
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->plan, work);
  EXPECT_TRUE((*read)->own().made_directory);
  ASSERT_EQ((*read)->files.size(), 1u);
  EXPECT_EQ((*read)->files.at(1).written.digests, digests);
  EXPECT_EQ((*read)->files.at(1).written.num_beyond, num_beyond);
  ASSERT_TRUE((*read)->commit.has_value());
  EXPECT_EQ((*read)->commit->digest, 99u);
  const ConvertPlan& got = (*read)->commit->plan;
  EXPECT_EQ(got.from, plan.from);
  EXPECT_EQ(got.to, plan.to);
  ASSERT_EQ(got.files.size(), 1u);
  EXPECT_EQ(got.files[0].name, "x y");
  EXPECT_EQ(got.files[0].bytes, 12u);
  EXPECT_EQ(got.bytes_to_write, 4u);
  EXPECT_EQ(got.num_lanes, 6u);
  EXPECT_TRUE(got.check.checked);
  EXPECT_EQ(got.check.num_crcs_checked, 7u);
  EXPECT_EQ(got.check.num_digests_checked, 8u);
  EXPECT_EQ(got.check.bytes_checked, 9u);
  EXPECT_EQ(got.check.num_items_unchecked, 10u);
  EXPECT_EQ(got.check.bytes_unchecked, 11u);
  ASSERT_EQ(got.cast_losses.size(), 1u);
  EXPECT_EQ(got.cast_losses[0].name, "a b");
  EXPECT_EQ(got.cast_losses[0].dtype, DType::kFloat16);
  EXPECT_EQ(got.cast_losses[0].num_beyond, 12u);
}

// A job says them when it is asked for its result, also after a restart.
TEST(ConvertJournal, KeepsTheNamesThatWereLeftOut) {
  ConvertPlan plan;
  plan.from = plan.to = Format::kSafetensors;
  plan.dropped = {"step", ""};
  plan.dropped_metadata = {"license", "two\nlines"};
  plan.code_left_out = {"modeling_llama.py", "a b.py"};
  plan.dropped_config = {"quantization_config"};
  plan.not_copied = {"2_Dense/", "read me"};
  plan.warnings = {"no optimizer, and\nmore"};
  const auto read =
      ParseConvertRecords({WritePlanRecord(JournaledSample()),
                           WriteCommitRecord({.digest = 1, .plan = plan})});
  ASSERT_OK(read);
  const ConvertPlan& got = (*read)->commit->plan;
  EXPECT_EQ(got.dropped, plan.dropped);
  EXPECT_EQ(got.dropped_metadata, plan.dropped_metadata);
  EXPECT_EQ(got.code_left_out, plan.code_left_out);
  EXPECT_EQ(got.dropped_config, plan.dropped_config);
  EXPECT_EQ(got.not_copied, plan.not_copied);
  EXPECT_EQ(got.warnings, plan.warnings);
}

TEST(ConvertJournal, NoRecordsAreNoRun) {
  const auto run = ParseConvertRecords({});
  ASSERT_OK(run);
  EXPECT_FALSE(run->has_value());
}

TEST(ConvertJournal, RefusesOtherText) {
  const std::string plan = WritePlanRecord(JournaledSample());
  const std::string file = WritePieceRecord({});
  const std::string commit = WriteCommitRecord({});
  const auto changed = [](absl::string_view text, absl::string_view from,
                          absl::string_view to) {
    return absl::StrReplaceAll(text, {{from, to}});
  };
  WorkPlan shared = JournaledSample();
  shared.journaled.reset();
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"empty", {""}},
      {"without an end", {plan.substr(0, plan.size() - 1)}},
      {"a file of no plan", {file}},
      {"a commit of no plan", {commit}},
      {"the plan of workers", {WritePlanRecord(shared)}},
      {"a file that is not there", {plan, WritePieceRecord({.number = 2})}},
      {"a record of an older build", {"plan 1 0 1 0 id -\n"}},
      {"a word too many", {changed(plan, "3210 -", "3210 - more")}},
      {"no digest of the index",
       {plan, changed(commit, "commit ", "commit x")}},
      {"a format that is not there", {plan, changed(commit, "0 0", "0 9")}},
      {"too few numbers", {plan, changed(commit, " 0 0 0", "")}},
      {"a type that is not one",
       {plan, changed(commit, "\nend", "\nloss word 1 x\nend")}},
      {"an unknown line", {plan, changed(commit, "\nend", "\nother 1\nend")}},
  };
  for (const auto& [name, records] : cases) {
    EXPECT_THAT(ParseConvertRecords(records).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record")))
        << name;
  }
}

}  // namespace
}  // namespace dcp
