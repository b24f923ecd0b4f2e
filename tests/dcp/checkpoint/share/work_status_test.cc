// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/share/work_status.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;

class WorkStatusTest : public ::testing::TestWithParam<const char*> {
 protected:
  WorkStatusTest() {
    SampleState state;
    for (const char* name : {"a", "b", "c", "d"}) {
      state.Add(SampleTensor(name, DType::kFloat32, {50}, 1));
    }
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(fs_, "/model", state.state(), coordinator,
                   {.memory_bytes = kMinMemoryBytes}));
    EXPECT_OK(fs_.MakeDirectory("/place"));
  }

  absl::StatusOr<ShareResult> Work(absl::string_view dst, uint32_t index) {
    ConvertOptions options;
    options.memory_bytes = kMinMemoryBytes;
    return ConvertShare(fs_, "/model", dst, std::move(options),
                        {.share = {index, 2}, .piece_bytes = 200});
  }

  SimStorage fs_;
};

TEST_P(WorkStatusTest, TellsWhatIsDone) {
  const std::string dst = JoinPath("/place", GetParam());
  EXPECT_THAT(FindWork(fs_, dst), IsOkAndHolds(Eq(std::nullopt)));
  ASSERT_OK_AND_ASSIGN(const ShareResult first, Work(dst, 0));
  EXPECT_FALSE(first.is_complete);
  ASSERT_OK_AND_ASSIGN(const std::optional<WorkStatus> status,
                       FindWork(fs_, dst));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->id, first.id);
  EXPECT_EQ(status->num_pieces, first.num_pieces);
  EXPECT_EQ(status->done.size(), first.num_written);
  EXPECT_LT(status->done.size(), status->num_pieces);
  uint64_t num_bytes = 0;
  for (const WorkStatus::Done& done : status->done) {
    EXPECT_FALSE(done.host.empty());
    num_bytes += done.bytes;
  }
  EXPECT_GT(num_bytes, 0u);
  EXPECT_LT(num_bytes, status->num_bytes);
  ASSERT_OK_AND_ASSIGN(const ShareResult second, Work(dst, 1));
  EXPECT_TRUE(second.is_complete);
  EXPECT_THAT(FindWork(fs_, dst), IsOkAndHolds(Eq(std::nullopt)));
}

TEST_P(WorkStatusTest, DiscardsEverything) {
  const std::string dst = JoinPath("/place", GetParam());
  ASSERT_OK(Work(dst, 0).status());
  EXPECT_THAT(DiscardWork(fs_, dst), IsOkAndHolds(1u));
  EXPECT_THAT(FindWork(fs_, dst), IsOkAndHolds(Eq(std::nullopt)));
  EXPECT_THAT(DiscardWork(fs_, dst), IsOkAndHolds(0u));
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> left,
                       fs_.List("/place"));
  for (const DirectoryEntry& entry : left) {
    EXPECT_EQ(JoinPath("/place", entry.name), dst);
    EXPECT_THAT(fs_.List(dst), IsOkAndHolds(::testing::IsEmpty()));
  }
  ASSERT_OK(Work(dst, 0).status());
  ASSERT_OK_AND_ASSIGN(const ShareResult result, Work(dst, 1));
  EXPECT_TRUE(result.has_committed);
}

TEST(WorkStatus, NamesSeveralPlans) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/out"));
  ASSERT_OK(fs.MakeDirectory("/out/.work-1"));
  ASSERT_OK(fs.MakeDirectory("/out/.work-2"));
  EXPECT_THAT(FindWork(fs, "/out"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/out/.work-2")));
  EXPECT_THAT(DiscardWork(fs, "/out"), IsOkAndHolds(2u));
}

INSTANTIATE_TEST_SUITE_P(Destinations, WorkStatusTest,
                         ::testing::Values("out", "m.pt", "m.safetensors"));

}  // namespace
}  // namespace dcp
