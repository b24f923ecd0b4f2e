#include "server/operations_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/server/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseJobFilter, UnderstandsWhatTheApiSays) {
  ASSERT_OK_AND_ASSIGN(const JobFilter all, ParseJobFilter(" "));
  EXPECT_FALSE(all.state.has_value());
  EXPECT_FALSE(all.kind.has_value());
  ASSERT_OK_AND_ASSIGN(const JobFilter both,
                       ParseJobFilter("state = RUNNING AND kind=RESHARD"));
  EXPECT_EQ(both.state, JobMetadata::RUNNING);
  EXPECT_EQ(both.kind, JobMetadata::RESHARD);
  ASSERT_OK_AND_ASSIGN(const JobFilter kind, ParseJobFilter("kind = VERIFY"));
  EXPECT_EQ(kind.kind, JobMetadata::VERIFY);
}

TEST(ParseJobFilter, RefusesTheRest) {
  for (const auto* text :
       {"state", "state = running", "state = ", "kind = RUNNING", "a = b",
        "state = RUNNING OR state = FAILED", "state = RUNNING AND",
        "state = RUNNING AND state = FAILED", "= RUNNING"}) {
    EXPECT_THAT(
        ParseJobFilter(text).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("filter has")))
        << text;
  }
}

class OperationsServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  OperationsServiceTest() {
    MakeCheckpoint(dir_.Join("data/source"), 2, 1 << 12);
    Start(false);
  }

  void Start(bool hold_memory) {
    server_.reset();
    JobServer::Settings settings;
    settings.hold_memory = hold_memory;
    server_ = std::make_unique<JobServer>(dir_.path(), settings);
  }

  std::string Submit(absl::string_view destination) {
    const auto operation = server_->Convert(server_->Request(destination));
    EXPECT_OK(operation);
    return operation.ok() ? operation->name() : "";
  }

  static std::vector<std::string> NamesOf(
      const google::longrunning::ListOperationsResponse& page) {
    std::vector<std::string> names;
    for (const Operation& operation : page.operations()) {
      names.push_back(operation.name());
    }
    return names;
  }

  const TempDir dir_;
  std::unique_ptr<JobServer> server_;
};

TEST_F(OperationsServiceTest, ListsPageByPageInOrderOfCreation) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    names.push_back(Submit(absl::StrCat("out-", i)));
    ASSERT_OK(server_->Wait(names.back()));
  }
  std::vector<std::string> listed;
  std::string token;
  int num_pages = 0;
  do {
    const auto page = server_->List("", 2, token);
    ASSERT_OK(page);
    const std::vector<std::string> some = NamesOf(*page);
    EXPECT_LE(some.size(), 2u);
    listed.insert(listed.end(), some.begin(), some.end());
    token = page->next_page_token();
    ++num_pages;
  } while (!token.empty());
  EXPECT_EQ(num_pages, 3);
  EXPECT_THAT(listed, ElementsAreArray(names));
  EXPECT_THAT(NamesOf(*server_->List()), ElementsAreArray(names));
}

TEST_F(OperationsServiceTest, ListsWhatTheFilterSays) {
  const std::string good = Submit("out");
  ASSERT_OK(server_->Wait(good));
  auto request = server_->Request("bad");
  request.mutable_source()->set_path(server_->data("none"));
  const auto bad = server_->Convert(request);
  ASSERT_OK(bad);
  ASSERT_OK(server_->Wait(bad->name()));
  EXPECT_THAT(NamesOf(*server_->List("state = SUCCEEDED")), ElementsAre(good));
  EXPECT_THAT(NamesOf(*server_->List("state = FAILED AND kind = CONVERT")),
              ElementsAre(bad->name()));
  EXPECT_THAT(NamesOf(*server_->List("kind = VERIFY")), IsEmpty());
}

TEST_F(OperationsServiceTest, RefusesListsThatMakeNoSense) {
  EXPECT_THAT(server_->List("nonsense").status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(server_->List("", 0, "x").status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(server_->List("", -1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  grpc::ClientContext context;
  google::longrunning::ListOperationsRequest request;
  request.set_name("elsewhere");
  google::longrunning::ListOperationsResponse response;
  EXPECT_EQ(server_->operations()
                .ListOperations(&context, request, &response)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(OperationsServiceTest, WhatIsNotThereIsNotFound) {
  for (const auto* name : {"", "operations/", "operations/none", "none"}) {
    EXPECT_THAT(server_->Get(name).status(),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(server_->Wait(name).status(),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(server_->Cancel(name), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(server_->Delete(name), StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST_F(OperationsServiceTest, DeletesWhatHasEnded) {
  Start(/*hold_memory=*/true);
  const std::string name = Submit("out");
  EXPECT_THAT(server_->Delete(name),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  server_->ReleaseMemory();
  ASSERT_OK(server_->Wait(name));
  ASSERT_OK(server_->Cancel(name));  // too late, and harmless
  ASSERT_OK(server_->Delete(name));
  EXPECT_THAT(server_->Get(name).status(),
              StatusIs(absl::StatusCode::kNotFound));
  Start(false);
  EXPECT_THAT(server_->Get(name).status(),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(OperationsServiceTest, AWaitEndsWithItsTimeout) {
  Start(/*hold_memory=*/true);
  const std::string name = Submit("out");
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Milliseconds(50)}) {
    const auto now = server_->Wait(name, timeout);
    ASSERT_OK(now);
    EXPECT_FALSE(now->done());
  }
  EXPECT_THAT(
      server_->Wait(name, absl::Seconds(-1)).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout")));
  server_->ReleaseMemory();
  const auto ended = server_->Wait(name, absl::Hours(1'000'000));
  ASSERT_OK(ended);
  EXPECT_TRUE(ended->done());
}

TEST_F(OperationsServiceTest, AWaitEndsWithItsCallsDeadline) {
  Start(/*hold_memory=*/true);
  const std::string name = Submit("out");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(50));
  google::longrunning::WaitOperationRequest request;
  request.set_name(name);
  Operation operation;
  EXPECT_EQ(server_->operations()
                .WaitOperation(&context, request, &operation)
                .error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(OperationsServiceTest, AWaitEndsWhenTheServerDrains) {
  Start(/*hold_memory=*/true);
  const std::string name = Submit("out");
  server_->manager().Drain(absl::InfinitePast());
  const auto now = server_->Wait(name);
  ASSERT_OK(now);
  EXPECT_FALSE(now->done());
}

}  // namespace
}  // namespace dcp::server
