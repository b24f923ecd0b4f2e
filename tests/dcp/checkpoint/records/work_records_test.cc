// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/records/work_records.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ::dcp::testing::kDataLoss;

WorkPlan SamplePlan() {
  return {.id = "0123456789abcdef0123456789abcdef",
          .kind = DestinationKind::kDirectory,
          .files = {"model 1\n.safetensors", "b"},
          .pieces = {{0, 0, 2, 10, 20}, {1, 0, 1, 0, UINT64_MAX}}};
}

PieceRecord SampleRecord() {
  return {.number = 1,
          .written = {.digests = {{"b", 5, 7, 0xdeadbeef}, {"b", 12, 1, 0}},
                      .num_beyond = {{3, 14}},
                      .crcs = {0, UINT32_MAX}},
          .check = {true, 1, 2, 3, 4, 5},
          .bytes = 20,
          .milliseconds = 1500,
          .host = "node 7"};
}

TEST(WorkRecords, APlanIsReadAsItWasWritten) {
  EXPECT_THAT(ParsePlanRecord(WritePlanRecord(SamplePlan())),
              IsOkAndHolds(SamplePlan()));
}

TEST(WorkRecords, ARecordIsReadAsItWasWritten) {
  ASSERT_OK_AND_ASSIGN(
      const PieceRecord read,
      ParsePieceRecord(WritePieceRecord(SampleRecord()), SamplePlan()));
  const PieceRecord sample = SampleRecord();
  EXPECT_EQ(read.written.digests, sample.written.digests);
  EXPECT_EQ(read.written.num_beyond, sample.written.num_beyond);
  EXPECT_EQ(read.written.crcs, sample.written.crcs);
  EXPECT_TRUE(read.check.checked);
  EXPECT_EQ(read.check.bytes_unchecked, 5u);
  EXPECT_EQ(read.bytes, 20u);
  EXPECT_EQ(read.milliseconds, 1500u);
  EXPECT_EQ(read.host, "node 7");
  EXPECT_FALSE(
      ParsePieceRecord(WritePieceRecord({}), SamplePlan())->check.checked);
}

TEST(WorkRecords, PartsOfStretchesAreReadAsTheyWereWritten) {
  PieceRecord record = SampleRecord();
  record.parts = {{.file = 1,
                   .offset = 5,
                   .length = 2 * kCheckedCellBytes + 1,
                   .name = "a b\n",
                   .crc = std::nullopt,
                   .cells = {{0, 0xffu}, {2, 0u}}},
                  {.file = 2,
                   .offset = 7,
                   .length = 9,
                   .name = "-",
                   .crc = 0xdeadbeef,
                   .cells = {}}};
  record.moved_with = {4, 7};
  const std::string text = WritePieceRecord(record);
  ASSERT_OK_AND_ASSIGN(const PieceRecord read,
                       ParsePieceRecord(text, SamplePlan()));
  EXPECT_EQ(read.parts, record.parts);
  EXPECT_EQ(read.moved_with, record.moved_with);
  // A cell beyond the stretch.
  EXPECT_THAT(
      ParsePieceRecord(absl::StrReplaceAll(text, {{"\ncell 2", "\ncell 3"}}),
                       SamplePlan()),
      StatusIs(kDataLoss));
}

TEST(WorkRecords, ThoseOfAVerifyAreReadAsTheyWereWritten) {
  const WorkPlan plan{.id = "0123456789abcdef",
                      .kind = DestinationKind::kDcpDirectory,
                      .pieces = {{.file = 3, .offset = 7, .length = 100}},
                      .verify = VerifyReport{.format = Format::kTorch,
                                             .num_tensors = 1,
                                             .num_objects = 2,
                                             .num_chunks = 3,
                                             .num_items = 5,
                                             .num_items_checked = 4}};
  EXPECT_THAT(ParsePlanRecord(WritePlanRecord(plan)), IsOkAndHolds(plan));
  const std::vector<VerifyFinding> findings = {
      {.name = "a b\n", .file = "file 1", .offset = 9, .problem = "two words"},
      {.name = "", .file = "", .offset = 0, .problem = "of \\ all"}};
  const PieceRecord record{.verified = VerifyReport{.num_crcs_checked = 1,
                                                    .num_items_missed = 2,
                                                    .findings = findings}};
  ASSERT_OK_AND_ASSIGN(const PieceRecord read,
                       ParsePieceRecord(WritePieceRecord(record), plan));
  EXPECT_EQ(read.verified, record.verified);
  // A plan is of one kind, and a name belongs to a finding.
  const std::string both = absl::StrReplaceAll(
      WritePlanRecord(plan), {{"\npiece", "\nplan 01 0\npiece"}});
  EXPECT_THAT(ParsePlanRecord(both), StatusIs(kDataLoss));
  const std::string lone = absl::StrReplaceAll(WritePieceRecord(record),
                                               {{"finding 9 file 1\n", ""}});
  EXPECT_THAT(ParsePieceRecord(lone, plan), StatusIs(kDataLoss));
}

TEST(WorkRecords, DamagedRecordsAreRefused) {
  const std::string plan = WritePlanRecord(SamplePlan());
  const std::string piece = WritePieceRecord(SampleRecord());
  for (size_t length = 0; length < plan.size(); ++length) {
    EXPECT_THAT(ParsePlanRecord(plan.substr(0, length)), StatusIs(kDataLoss));
  }
  for (size_t length = 0; length < piece.size(); ++length) {
    EXPECT_THAT(ParsePieceRecord(piece.substr(0, length), SamplePlan()),
                StatusIs(kDataLoss));
  }
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"file b", "file ../b"},
           {"file b", "file /b"},
           {"file b\n", ""},
           {"piece 1", "piece 2"},
           {"piece 1", "piece -1"},
           {"piece 1", "slice 1"},
           {"plan 0", "plan ../"},
           {"abcdef 1\n", "abcdef 9\n"},
           {"plan 0123456789abcdef0123456789abcdef 1\n", ""}}) {
    EXPECT_THAT(ParsePlanRecord(absl::StrReplaceAll(plan, {{from, to}})),
                StatusIs(kDataLoss))
        << from << " -> " << to;
  }
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"crc 0", "crc 100000000"},
           {"crc 0", "crc x"},
           {"digest 5", "digest"},
           {"beyond 3 14", "beyond 3"},
           {"piece 1", "piece 2"},
           {"piece 1", "plan 1"},
           {"checked", "unchecked"}}) {
    EXPECT_THAT(ParsePieceRecord(absl::StrReplaceAll(piece, {{from, to}}),
                                 SamplePlan()),
                StatusIs(kDataLoss))
        << from << " -> " << to;
  }
}

TEST(WorkRecords, AnotherVersionIsNamed) {
  EXPECT_THAT(ParsePlanRecord("tessera-work 1\nplan 01 0\nend\n"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another version")));
}

TEST(WorkRecords, AllWorkersHaveOnePlan) {
  SimStorage fs;
  WorkRecords first(fs, "/work");
  WorkRecords second(fs, "/work");
  ASSERT_OK(first.Begin(SamplePlan()));
  ASSERT_OK(second.Begin(SamplePlan()));
  EXPECT_THAT(second.ReadPlan(), IsOkAndHolds(SamplePlan()));
  WorkPlan other = SamplePlan();
  other.pieces.pop_back();
  EXPECT_THAT(second.Begin(other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("same version of dcp-convert")));
}

TEST(WorkRecords, ARecordThatIsThereSurvivesACrash) {
  for (uint64_t moment = 0;; ++moment) {
    SimStorage fs({.seed = moment + 1});
    WorkRecords records(fs, "/work");
    ASSERT_OK(records.Begin(SamplePlan()));
    EXPECT_THAT(records.Without({1}), IsOkAndHolds(ElementsAre(1)));
    fs.CrashAfter(moment);
    const bool written = records.Write(1, SampleRecord()).ok();
    fs.Reboot();
    ASSERT_OK_AND_ASSIGN(const std::vector<uint32_t> missing,
                         records.Without({1}));
    const bool has = missing.empty();
    if (has) EXPECT_OK(records.Read(1, SamplePlan()).status());
    if (!written) continue;
    EXPECT_TRUE(has);
    break;
  }
}

// Many enough for several threads.
TEST(WorkRecords, LooksForManyAtOnce) {
  SimStorage fs;
  WorkRecords records(fs, "/work");
  ASSERT_OK(records.Begin(SamplePlan()));
  std::vector<uint32_t> pieces(300);
  std::iota(pieces.begin(), pieces.end(), 0);
  std::vector<uint32_t> missing;
  for (const uint32_t piece : pieces) {
    if (piece % 3 == 1) {
      missing.push_back(piece);
    } else {
      ASSERT_OK(records.Write(piece, SampleRecord()));
    }
  }
  EXPECT_THAT(records.Without(pieces), IsOkAndHolds(missing));
  EXPECT_THAT(records.HasAll(300), IsOkAndHolds(false));
  for (const uint32_t piece : missing) {
    ASSERT_OK(records.Write(piece, SampleRecord()));
  }
  EXPECT_THAT(records.Without(pieces), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(records.HasAll(300), IsOkAndHolds(true));
  ASSERT_OK(records.Remove());
  EXPECT_THAT(records.HasAll(300), StatusIs(absl::StatusCode::kNotFound));
}

TEST(WorkRecords, ForgetsAndRemovesThem) {
  SimStorage fs;
  WorkRecords records(fs, "/work");
  EXPECT_THAT(records.Write(0, SampleRecord()),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(records.Begin(SamplePlan()));
  ASSERT_OK(records.Write(0, SampleRecord()));
  ASSERT_OK(records.Forget(0));
  ASSERT_OK(records.Forget(0));
  EXPECT_THAT(records.Without({0}), IsOkAndHolds(ElementsAre(0)));
  ASSERT_OK(records.Write(1, SampleRecord()));
  ASSERT_OK(records.Remove());
  ASSERT_OK(records.Remove());
  EXPECT_THAT(fs.Stat("/work"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(WorkRecords, FindsThemInsideAndNextToADestination) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/out"));
  EXPECT_THAT(WorkRecords::Find(fs, "/out"), IsOkAndHolds(IsEmpty()));
  const std::string id = SamplePlan().id;
  const std::string inside = WorkRecords::RecordsDirectory(
      "/out/", DestinationKind::kDcpDirectory, id);
  const std::string beside =
      WorkRecords::RecordsDirectory("/out/", DestinationKind::kFile, id);
  EXPECT_EQ(inside, absl::StrCat("/out/.work-", id));
  EXPECT_EQ(beside, "/.out.0123456789abc.work");
  ASSERT_OK(fs.MakeDirectory(inside));
  ASSERT_OK(fs.MakeDirectory(beside));
  ASSERT_OK(fs.MakeDirectory("/.output.0123456789abc.work"));
  EXPECT_THAT(WorkRecords::Find(fs, "/out/"),
              IsOkAndHolds(ElementsAre(inside, beside)));
}

}  // namespace
}  // namespace dcp
