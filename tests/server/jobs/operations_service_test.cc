// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/operations_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "tests/server/jobs/job_server.h"
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

TEST_F(OperationsServiceTest, AnAdminSeesAndEndsTheJobsOfAll) {
  server_.reset();
  // The digests of "one", "two" and "alice".
  JobServer::Settings settings;
  settings.hold_memory = true;  // no job begins
  settings.tokens =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
      "write=" +
      dir_.Join("data") +
      "\n"
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
      "write=" +
      dir_.Join("data") +
      "\n"
      "root 2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90 "
      "admin\n";
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  server_->set_token("one");
  const std::string of_a = Submit("out-a");
  server_->set_token("two");
  const std::string of_b = Submit("out-b");
  EXPECT_THAT(NamesOf(*server_->List()), ElementsAre(of_b));
  EXPECT_THAT(server_->Cancel(of_a), StatusIs(absl::StatusCode::kNotFound));
  server_->set_token("alice");
  EXPECT_THAT(NamesOf(*server_->List()), ElementsAre(of_a, of_b));
  EXPECT_EQ(MetadataOf(*server_->Get(of_b)).client(), "b");
  EXPECT_OK(server_->Cancel(of_a));
  const auto ended = server_->Wait(of_a);
  ASSERT_OK(ended);
  EXPECT_EQ(MetadataOf(*ended).state(), JobMetadata::CANCELLED);
  EXPECT_OK(server_->Delete(of_a));
  // The admin right does not include a right to a path.
  EXPECT_THAT(server_->Convert(server_->Request("out-c")),
              StatusIs(absl::StatusCode::kPermissionDenied));
  server_->set_token("one");
  EXPECT_THAT(NamesOf(*server_->List()), IsEmpty());
  server_->ReleaseMemory();
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
  EXPECT_THAT(NamesOf(*server_->List("state = FAILED OR state = SUCCEEDED")),
              ElementsAre(good, bad->name()));
  EXPECT_THAT(
      NamesOf(*server_->List(
          "NOT source : none AND create_time > '2020-01-01T00:00:00Z'")),
      ElementsAre(good));
}

// A token reveals nothing, and works only for the list that it came from.
TEST_F(OperationsServiceTest, TokensBelongToTheirQuery) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(server_->Wait(Submit(absl::StrCat("out-", i))));
  }
  const auto first = server_->List("state = SUCCEEDED", 1);
  ASSERT_OK(first);
  const std::string token = first->next_page_token();
  EXPECT_GT(token.size(), 40u);
  const auto second = server_->List("state = SUCCEEDED", 2, token);
  ASSERT_OK(second);
  EXPECT_EQ(second->operations_size(), 2);
  for (const char* filter : {"", "state = FAILED", "state =  SUCCEEDED"}) {
    EXPECT_EQ(ErrorReasonName(server_->List(filter, 1, token).status()),
              "INVALID_PAGE_TOKEN")
        << filter;
  }
  EXPECT_EQ(
      ErrorReasonName(server_->List("state = SUCCEEDED", 1, "1").status()),
      "INVALID_PAGE_TOKEN");
  // The token does not work after the next start either.
  Start(false);
  EXPECT_EQ(
      ErrorReasonName(server_->List("state = SUCCEEDED", 1, token).status()),
      "INVALID_PAGE_TOKEN");
}

TEST_F(OperationsServiceTest, TokensBelongToTheirClient) {
  server_.reset();
  JobServer::Settings settings;
  // The digests of "a" and "b".
  settings.tokens = absl::StrCat(
      "one ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb "
      "write=",
      dir_.Join("data"),
      "\ntwo 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d "
      "write=",
      dir_.Join("data"), "\n");
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  server_->set_token("a");
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(server_->Wait(Submit(absl::StrCat("out-", i))));
  }
  const auto page = server_->List("", 1);
  ASSERT_OK(page);
  ASSERT_OK(server_->List("", 1, page->next_page_token()));
  server_->set_token("b");
  EXPECT_EQ(
      ErrorReasonName(server_->List("", 1, page->next_page_token()).status()),
      "INVALID_PAGE_TOKEN");
}

TEST_F(OperationsServiceTest, RefusesListsThatMakeNoSense) {
  const absl::Status filter = server_->List("state = DONE").status();
  EXPECT_THAT(filter, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("column 9")));
  EXPECT_EQ(ErrorReasonName(filter), "INVALID_FILTER");
  EXPECT_EQ(BlamedField(filter), "filter");
  EXPECT_EQ(GetErrorInfo(filter).metadata().at("column"), "9");
  const absl::Status token = server_->List("", 0, "x").status();
  EXPECT_THAT(token, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(ErrorReasonName(token), "INVALID_PAGE_TOKEN");
  const absl::Status size = server_->List("", -1).status();
  EXPECT_THAT(size, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(BlamedField(size), "page_size");
  grpc::ClientContext context;
  google::longrunning::ListOperationsRequest request;
  request.set_name("elsewhere");
  google::longrunning::ListOperationsResponse response;
  EXPECT_EQ(server_->operations()
                .ListOperations(&context, request, &response)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

constexpr char kNoJob[] = "operations/f47ac10b-58cc-4372-a567-0e02b2c3d479";

TEST_F(OperationsServiceTest, WhatIsNotThereIsNotFound) {
  for (const absl::Status& status :
       {server_->Get(kNoJob).status(), server_->Wait(kNoJob).status(),
        server_->Cancel(kNoJob), server_->Delete(kNoJob)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(ErrorReasonName(status), "JOB_NOT_FOUND");
    EXPECT_EQ(GetErrorInfo(status).metadata().at("name"), kNoJob);
    EXPECT_EQ(RetryAfterMs(status), -1);
  }
}

TEST_F(OperationsServiceTest, WhatIsNotANameIsInvalid) {
  const std::string long_name = std::string(kNoJob) + "0";
  for (const std::string& name :
       {std::string(), std::string("operations/"),
        std::string("operations/none"), std::string(kNoJob + 11), long_name}) {
    for (const absl::Status& status :
         {server_->Get(name).status(), server_->Wait(name).status(),
          server_->Cancel(name), server_->Delete(name)}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("a UUID")))
          << name;
      EXPECT_EQ(BlamedField(status), "name");
    }
  }
}

TEST_F(OperationsServiceTest, DeletesWhatHasEnded) {
  Start(/*hold_memory=*/true);
  const std::string name = Submit("out");
  const absl::Status too_early = server_->Delete(name);
  EXPECT_THAT(too_early, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(ErrorReasonName(too_early), "JOB_NOT_ENDED");
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
  server_->manager().Drain(absl::ZeroDuration());
  const auto now = server_->Wait(name);
  ASSERT_OK(now);
  EXPECT_FALSE(now->done());
}

// Their threads wait for the journal and tell watchers. gRPC has few.
TEST_F(OperationsServiceTest, CallsThatWaitHoldUpNoThreadOfGrpc) {
  Start(/*hold_memory=*/true);
  constexpr int kMoreThanGrpcHasThreads = 40;
  // Watchers may be called after this function.
  const auto open = std::make_shared<absl::Notification>();
  const Client client("anonymous", {});
  std::vector<std::string> names;
  for (int i = 0; i < kMoreThanGrpcHasThreads; ++i) {
    names.push_back(Submit(absl::StrCat("out-", i)));
    ASSERT_OK(server_->manager().Watch(
        client, names.back(), [open] { open->WaitForNotification(); }));
  }
  {
    std::vector<std::jthread> cancels;
    for (const std::string& name : names) {
      cancels.emplace_back([&] { EXPECT_OK(server_->Cancel(name)); });
    }
    for (int i = 0; i < 10; ++i) Submit(absl::StrCat("other-", i));
    open->Notify();
  }
  for (const std::string& name : names) {
    EXPECT_EQ(MetadataOf(*server_->Get(name)).state(), JobMetadata::CANCELLED);
  }
}

}  // namespace
}  // namespace dcp::server
