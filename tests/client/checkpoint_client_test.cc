// SPDX-License-Identifier: Apache-2.0

#include "client/checkpoint_client.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/client/fake_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp::client {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
namespace v1 = tessera::v1;

class CheckpointClientTest : public ::testing::Test {
 protected:
  FakeServer server_;
  CheckpointClient client_{server_.Connect()};
};

TEST_F(CheckpointClientTest, MergesPagesIntoOneAnswer) {
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse all, client_.Inspect({}));
  EXPECT_EQ(all.num_tensors(), 3);
  ASSERT_EQ(all.tensors_size(), 3);
  ASSERT_EQ(all.objects_size(), 3);
  EXPECT_EQ(all.tensors(2).name(), "t2");
  EXPECT_EQ(all.objects(2).name(), "o2");
  EXPECT_EQ(all.next_page_token(), "");
}

TEST_F(CheckpointClientTest, RereadsPagesAfterARestart) {
  server_.checkpoints.num_refused_tokens = 2;
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse all, client_.Inspect({}));
  ASSERT_EQ(all.tensors_size(), 3);
  EXPECT_EQ(all.tensors(0).name(), "t0");
  EXPECT_EQ(all.tensors(2).name(), "t2");
  server_.checkpoints.num_refused_tokens = 1000;
  const absl::Status status = client_.Inspect({}).status();
  EXPECT_EQ(ErrorReasonName(status), "INVALID_PAGE_TOKEN");
  EXPECT_EQ(BlamedField(status), "page_token");
}

TEST_F(CheckpointClientTest, RereadsABrokenStreamFromTheBeginning) {
  server_.checkpoints.num_failures = 2;
  EXPECT_THAT(client_.GetMetadata({}), IsOkAndHolds("metadata"));
  server_.checkpoints.num_failures = 2;
  ASSERT_OK_AND_ASSIGN(const auto objects, client_.ReadObjects({}));
  ASSERT_EQ(objects.size(), 2);
  EXPECT_EQ(objects[1].name(), "b");
}

TEST_F(CheckpointClientTest, VerifyReturnsProgressAndAReport) {
  int num_progress = 0;
  ASSERT_OK_AND_ASSIGN(
      const v1::VerifyReport report,
      client_.Verify({}, [&](const v1::ReadProgress&) { ++num_progress; }));
  EXPECT_EQ(report.num_tensors(), 7);
  EXPECT_EQ(num_progress, 1);
}

TEST_F(CheckpointClientTest, MissingReportIsAnError) {
  server_.checkpoints.part_bytes = {1};
  EXPECT_THAT(
      client_.Verify({}, [](const v1::ReadProgress&) {}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("without a report")));
}

TEST_F(CheckpointClientTest, PartsArriveInTheCallersMemory) {
  server_.checkpoints.part_bytes = {10, 0, 5};
  std::vector<std::vector<uint8_t>> memory = {std::vector<uint8_t>(10),
                                              std::vector<uint8_t>(0),
                                              std::vector<uint8_t>(5)};
  std::vector<WantedPart> parts(3);
  for (size_t i = 0; i < 3; ++i) {
    parts[i].part.set_name("t" + std::to_string(i));
    parts[i].memory = memory[i];
  }
  ASSERT_OK_AND_ASSIGN(const ReadTensorsStats stats,
                       client_.ReadTensors({}, parts));
  EXPECT_EQ(stats.num_bytes, 15);
  EXPECT_EQ(memory[0][9], FakeByte(9));
  EXPECT_EQ(memory[2][4], FakeByte(14));
}

TEST_F(CheckpointClientTest, PartsAndMemoryMustAgree) {
  server_.checkpoints.part_bytes = {10};
  std::vector<uint8_t> memory(9);
  WantedPart wanted;
  wanted.part.set_name("t0");
  wanted.memory = memory;
  EXPECT_THAT(client_.ReadTensors({}, {&wanted, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("t0: the memory has 9 bytes, the part 10")));
  wanted.part.set_name("other");
  EXPECT_THAT(client_.ReadTensors({}, {&wanted, 1}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("which was not requested")));
  EXPECT_OK(client_.ReadTensors({}, std::span<const WantedPart>()));
}

}  // namespace
}  // namespace dcp::client
