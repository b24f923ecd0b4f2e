// SPDX-License-Identifier: Apache-2.0

#include "server/reading/progress_ticker.h"

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

TEST(ProgressTicker, ReportsProgressRepeatedly) {
  // Owners: this test and the ticker's calls.
  auto third = std::make_shared<absl::Notification>();
  auto num_told = std::make_shared<std::atomic<int>>(0);
  auto last = std::make_shared<std::atomic<uint64_t>>(0);
  const auto ticker = ProgressTicker::Start(
      absl::Milliseconds(1),
      [third, num_told, last](const tessera::v1::ReadProgress& progress) {
        last->store(progress.bytes_done() * 1000 + progress.bytes_total());
        if (++*num_told == 3) third->Notify();
      },
      absl::InfiniteDuration(), [] {});
  ticker->set_total(7);
  ticker->stats().bytes_read.store(3);
  third->WaitForNotification();
  ticker->Stop();
  EXPECT_EQ(last->load(), 3007u);
}

TEST(ProgressTicker, ReportsAStall) {
  // Owners: this test and the ticker's calls.
  auto stalled = std::make_shared<absl::Notification>();
  const auto ticker = ProgressTicker::Start(
      absl::Milliseconds(1), [](const tessera::v1::ReadProgress&) {},
      absl::Milliseconds(1),
      [stalled] {
        if (!stalled->HasBeenNotified()) stalled->Notify();
      });
  stalled->WaitForNotification();
  ticker->Stop();
}

// Items that are found count like bytes that are read.
TEST(ProgressTicker, DoesNotStallWhileReading) {
  for (const bool items : {false, true}) {
    // Owners: this test and the ticker's calls.
    auto ticker_of = std::make_shared<std::atomic<ProgressTicker*>>(nullptr);
    auto num_ticks = std::make_shared<std::atomic<int>>(0);
    auto num_stalled = std::make_shared<std::atomic<int>>(0);
    const auto ticker = ProgressTicker::Start(
        absl::Milliseconds(1),
        [=](const tessera::v1::ReadProgress&) {
          ProgressTicker* const known = ticker_of->load();
          if (known == nullptr) return;
          if (num_ticks->load() == 0) *num_stalled = 0;
          ++(items ? known->opening().num_items_located
                   : known->stats().bytes_read);
          ++*num_ticks;
        },
        absl::ZeroDuration(), [num_stalled] { ++*num_stalled; });
    ticker_of->store(ticker.get());
    while (*num_ticks < 5) std::this_thread::yield();
    EXPECT_EQ(*num_stalled, 0);
    ticker->Stop();
  }
}

TEST(ProgressTicker, IsFreedAfterStop) {
  std::weak_ptr<ProgressTicker> weak;
  {
    const auto ticker = ProgressTicker::Start(
        absl::Hours(1), [](const tessera::v1::ReadProgress&) {}, absl::Hours(1),
        [] {});
    weak = ticker;
    ticker->Stop();
  }
  // The last owner is the alarm's call, which comes on a gRPC thread.
  while (!weak.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace dcp::server
