// SPDX-License-Identifier: Apache-2.0

#include "server/transport/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/log.h"
#include "gtest/gtest.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/denied_calls.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::WithoutNewThreads;

// Keeps the descriptors that it gets, as gRPC does.
class AcceptorTest : public ::testing::Test {
 protected:
  ~AcceptorTest() override {
    acceptor_ = nullptr;
    for (int fd : accepted_) close(fd);
  }

  void Start(const ConnectionLimits& limits) {
    ASSERT_OK_AND_ASSIGN(Listener listener, Listener::Open("127.0.0.1:0"));
    address_ = listener.address();
    acceptor_ = std::make_unique<Acceptor>(std::move(listener), limits,
                                           [this](int, int fd) {
                                             absl::MutexLock lock(&mutex_);
                                             accepted_.push_back(fd);
                                             changed_.SignalAll();
                                           });
    ASSERT_OK(acceptor_->Start());
  }

  std::unique_ptr<RawConnection> Connect() {
    return std::make_unique<RawConnection>(address_);
  }

  void WaitForAccepted(size_t number) {
    absl::MutexLock lock(&mutex_);
    while (accepted_.size() < number) changed_.Wait(&mutex_);
  }

  void CloseAccepted() {
    absl::MutexLock lock(&mutex_);
    for (int fd : accepted_) close(fd);
    accepted_.clear();
  }

  // Connects until one is accepted: a closed connection is noticed only after a
  // moment.
  void ConnectUntilAccepted() {
    while (acceptor_->num_open() > 0) {
    }
    const auto connection = Connect();
    WaitForAccepted(1);
  }

  std::string address_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<int> accepted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Acceptor> acceptor_;  // last: the thread uses the others
};

TEST_F(AcceptorTest, ClosesConnectionsBeyondTheAddressLimit) {
  Start({.max_connections = 10, .max_per_address = 2});
  const auto first = Connect();
  const auto second = Connect();
  WaitForAccepted(2);
  EXPECT_TRUE(Connect()->WaitForEnd());
  EXPECT_EQ(acceptor_->num_refused(), 1);
  EXPECT_EQ(acceptor_->num_open(), 2);
  CloseAccepted();
  ConnectUntilAccepted();
}

TEST_F(AcceptorTest, ClosesConnectionsBeyondTheProcessLimit) {
  Start({.max_connections = 1, .max_per_address = 10});
  const auto first = Connect();
  WaitForAccepted(1);
  EXPECT_TRUE(Connect()->WaitForEnd());
  EXPECT_EQ(acceptor_->num_refused(), 1);
  CloseAccepted();
  ConnectUntilAccepted();
}

TEST_F(AcceptorTest, ContinuesWhenDescriptorsAreFree) {
  Start({});
  // The client gets a descriptor while some are left.
  const auto first = Connect();
  WaitForAccepted(1);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
  close(next);
  // One more than are open, for the client.
  const rlimit few = {.rlim_cur = static_cast<rlim_t>(next) + 1,
                      .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  absl::Notification exhausted;
  SetLogSink([&](LogSeverity, absl::string_view line) {
    if (absl::StrContains(line, "no_descriptors")) exhausted.Notify();
  });
  const auto waiting = Connect();  // in the backlog
  exhausted.WaitForNotification();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  WaitForAccepted(2);
  SetLogSink([](LogSeverity, absl::string_view) {});
}

TEST_F(AcceptorTest, KeepsAQuarterOfTheDescriptorsForFiles) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {.rlim_cur = 400, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int64_t within = ConnectionsWithinFileLimit(2000);
  const int64_t fewer = ConnectionsWithinFileLimit(100);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(within, 300);
  EXPECT_EQ(fewer, 100);
}

TEST(Acceptor, FailsWithoutAThread) {
  WithoutNewThreads([] {
    ASSERT_OK_AND_ASSIGN(Listener listener, Listener::Open("127.0.0.1:0"));
    Acceptor acceptor(std::move(listener), {}, [](int, int) {});
    EXPECT_THAT(acceptor.Start(),
                StatusIs(absl::StatusCode::kResourceExhausted));
  });
}

}  // namespace
}  // namespace dcp::server
