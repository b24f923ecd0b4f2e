// SPDX-License-Identifier: Apache-2.0
// Nothing that waits or measures follows the system's clock when somebody sets
// it.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "google/protobuf/util/time_util.h"
#include "gtest/gtest.h"
#include "server/reading/progress_ticker.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/testing/stepped_clock.h"

namespace dcp::server {
namespace {

using ::dcp::testing::SetClockStep;
using ::google::protobuf::util::TimeUtil;
using ::tessera::v1::ConvertResult;
using ::tessera::v1::JobMetadata;

class ClockStepTest : public JobFixture {
 protected:
  ~ClockStepTest() override { SetClockStep(absl::ZeroDuration()); }
};

TEST_F(ClockStepTest, SystemClockCanBeSet) {
  // absl::Now follows only after some time.
  const auto before = std::chrono::system_clock::now();
  SetClockStep(absl::Hours(2));
  EXPECT_GT(std::chrono::system_clock::now(), before + std::chrono::hours(1));
}

TEST_F(ClockStepTest, WatcherSeesAJobAfterAStepBack) {
  Gate gate(*server_, "Create", "out/");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(1));
  tessera::v1::WatchJobRequest request;
  request.set_name(name);
  const auto reader = server_->jobs().WatchJob(&context, request);
  Operation now;
  ASSERT_TRUE(reader->Read(&now));
  SetClockStep(-absl::Hours(1));
  ASSERT_TRUE(reader->Read(&now)) << "no news within a minute";
  EXPECT_FALSE(now.done());
  gate.Open();
  while (reader->Read(&now)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_TRUE(now.done());
  ConvertResult result;
  ASSERT_TRUE(now.response().UnpackTo(&result));
  const int64_t elapsed_s = TimeUtil::DurationToSeconds(result.elapsed());
  EXPECT_GE(elapsed_s, 0);
  EXPECT_LT(elapsed_s, 3600);
  JobMetadata metadata;
  ASSERT_TRUE(now.metadata().UnpackTo(&metadata));
  EXPECT_GE(metadata.end_time(), metadata.start_time());
}

TEST_F(ClockStepTest, WaitEndsInTimeAfterAStepBack) {
  Gate gate(*server_, "Create", "out/");
  const std::string name = Submit("out");
  gate.WaitUntilReached();
  SetClockStep(-absl::Hours(1));
  EXPECT_TRUE(server_->Wait(name, absl::Milliseconds(10)).ok());
  gate.Open();
}

// The kernel's clock is not set, so gRPC's next alarm would be late; the first
// tick is the last one.
TEST_F(ClockStepTest, StepForwardIsNotAStall) {
  absl::Notification started;
  absl::Notification gone;
  std::atomic<bool> stalled = false;
  std::shared_ptr<ProgressTicker> ticker;
  std::shared_ptr<void> life(nullptr, [&](void*) { gone.Notify(); });
  ticker = ProgressTicker::Start(
      absl::Milliseconds(1),
      [&, life = std::move(life)](const tessera::v1::ReadProgress&) {
        started.WaitForNotification();
        SetClockStep(absl::Hours(1));
        ticker->Stop();
        ticker.reset();  // the alarm keeps it until it has returned
      },
      absl::Minutes(2), [&] { stalled = true; });
  started.Notify();
  gone.WaitForNotification();
  EXPECT_FALSE(stalled);
}

}  // namespace
}  // namespace dcp::server
