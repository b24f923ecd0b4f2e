// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/convert_journal.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "dcp/checkpoint/convert/convert_plan.h"
#include "dcp/checkpoint/files/digests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

JournaledRun SampleRun() {
  JournaledRun run;
  run.fingerprint = 0xfedcba9876543210;
  run.kind = Destination::Kind::kDirectory;
  run.own = {.id = "an-id",
             .ran_before = true,
             .made_directory = true,
             .names = {"plain", "a name\nof two lines"}};
  run.index_before = "-";
  return run;
}

TEST(ConvertJournal, RecordsAreReadAsTheyWereWritten) {
  const JournaledRun run = SampleRun();
  const std::vector<ChunkDigest> digests = {
      {.file = run.own.names[1], .offset = 64, .length = 5, .digest = 7},
      {.file = run.own.names[1], .offset = 128, .length = 0, .digest = ~0ull}};
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
      {PlanRecord(SampleRun()), FileRecord(0, {}), PlanRecord(run),
       FileRecord(1, {.digests = digests, .num_beyond = num_beyond}),
       CommitRecord({.digest = 99, .plan = plan})});
  ASSERT_OK(read);
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->fingerprint, run.fingerprint);
  EXPECT_EQ((*read)->kind, run.kind);
  EXPECT_EQ((*read)->own.id, run.own.id);
  EXPECT_EQ((*read)->own.names, run.own.names);
  EXPECT_TRUE((*read)->own.made_directory);
  ASSERT_EQ((*read)->files.size(), 1u);
  EXPECT_EQ((*read)->files.at(1).digests, digests);
  EXPECT_EQ((*read)->files.at(1).num_beyond, num_beyond);
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
  const auto read = ParseConvertRecords(
      {PlanRecord(SampleRun()), CommitRecord({.digest = 1, .plan = plan})});
  ASSERT_OK(read);
  const ConvertPlan& got = (*read)->commit->plan;
  EXPECT_EQ(got.dropped, plan.dropped);
  EXPECT_EQ(got.dropped_metadata, plan.dropped_metadata);
  EXPECT_EQ(got.code_left_out, plan.code_left_out);
  EXPECT_EQ(got.dropped_config, plan.dropped_config);
  EXPECT_EQ(got.not_copied, plan.not_copied);
  EXPECT_EQ(got.warnings, plan.warnings);
}

TEST(ConvertJournal, ReadsRecordsOfEarlierVersions) {
  const auto read = ParseConvertRecords(
      {"plan 1 0 2 0 id -\nname x.pt\n", "file 0\n64 5 00000000000000ff\n",
       "commit ff dcp pt 1 2 3 4 5 6 0 0\nfile 12 x.pt\ndropped step\n"});
  ASSERT_OK(read);
  ASSERT_TRUE(read->has_value() && (*read)->commit.has_value());
  EXPECT_EQ((*read)->files.at(0).digests.size(), 1u);
  EXPECT_TRUE((*read)->files.at(0).num_beyond.empty());
  EXPECT_FALSE((*read)->commit->plan.check.checked);
  EXPECT_TRUE((*read)->commit->plan.cast_losses.empty());
}

TEST(ConvertJournal, NoRecordsAreNoRun) {
  const auto run = ParseConvertRecords({});
  ASSERT_OK(run);
  EXPECT_FALSE(run->has_value());
}

TEST(ConvertJournal, RefusesOtherText) {
  const std::string plan = PlanRecord(SampleRun());
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"empty", {""}},
      {"without an end", {plan.substr(0, plan.size() - 1)}},
      {"a file of no plan", {FileRecord(0, {})}},
      {"a commit of no plan", {CommitRecord({})}},
      {"a file that is not there", {plan, FileRecord(2, {})}},
      {"a version of the future", {"plan 2" + plan.substr(6)}},
      {"a word too many", {"plan 1 0 0 0 id - more\n"}},
      {"a kind that is none", {"plan 1 0 4 0 id -\n"}},
      {"no id", {"plan 1 0 1 0  -\n"}},
      {"a name that leads out", {"plan 1 0 1 0 id -\nname ../x\n"}},
      {"the directory above", {"plan 1 0 1 0 id -\nname ..\n"}},
      {"a digest that is none", {plan, "file 0\n1 2 xyz\n"}},
      {"a format that is none", {plan, "commit 0 dcp word 0 0 0 0 0 0 0 0\n"}},
      {"too few numbers", {plan, "commit 0 dcp dcp 0 0\n"}},
      {"a file's number that is none", {plan, "file 0\nbeyond 1 x\n"}},
      {"a type that is none",
       {plan, "commit 0 dcp dcp 0 0 0 0 0 0 0 0\nloss word 1 x\n"}},
      {"an unknown line",
       {plan, "commit 0 dcp dcp 0 0 0 0 0 0 0 0\nother 1\n"}},
  };
  for (const auto& [name, records] : cases) {
    EXPECT_THAT(ParseConvertRecords(records).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("record")))
        << name;
  }
}

}  // namespace
}  // namespace dcp
