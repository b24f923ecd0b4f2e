// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/server/jobs/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

class JobServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  JobServiceTest() {
    MakeCheckpoint(dir_.Join("data/source"), 3, 1 << 16);
    server_ = std::make_unique<JobServer>(dir_.path());
  }

  // Everything that a watcher is told about the job.
  absl::Status Watch(const std::string& name,
                     std::vector<Operation>& operations) {
    grpc::ClientContext context;
    server_->Prepare(context);
    tessera::v1::WatchJobRequest request;
    request.set_name(name);
    const auto reader = server_->jobs().WatchJob(&context, request);
    Operation operation;
    while (reader->Read(&operation)) operations.push_back(operation);
    return FromRpcStatus(reader->Finish(), "WatchJob");
  }

  const TempDir dir_;
  std::unique_ptr<JobServer> server_;
};

TEST_F(JobServiceTest, StartsEachKindOfJob) {
  std::vector<std::string> names;
  const auto options = [] {
    tessera::v1::JobOptions made;
    made.set_memory_bytes(uint64_t{16} << 20);
    return made;
  }();
  {
    tessera::v1::ReshardRequest request;
    request.mutable_source()->set_path(server_->data("source"));
    request.mutable_destination()->set_path(server_->data("columns"));
    auto* axis = request.mutable_mesh()->add_axes();
    axis->set_name("shard");
    axis->set_size(2);
    *request.mutable_options() = options;
    grpc::ClientContext context;
    Operation operation;
    ASSERT_TRUE(server_->jobs().Reshard(&context, request, &operation).ok());
    EXPECT_EQ(MetadataOf(operation).kind(), JobMetadata::RESHARD);
    EXPECT_EQ(MetadataOf(operation).source(), server_->data("source"));
    EXPECT_EQ(MetadataOf(operation).destination(), server_->data("columns"));
    EXPECT_EQ(MetadataOf(operation).memory_bytes(), uint64_t{16} << 20);
    names.push_back(operation.name());
  }
  {
    tessera::v1::ConsolidateRequest request;
    request.mutable_source()->set_path(server_->data("source"));
    request.mutable_destination()->set_path(server_->data("whole.safetensors"));
    grpc::ClientContext context;
    Operation operation;
    ASSERT_TRUE(
        server_->jobs().Consolidate(&context, request, &operation).ok());
    names.push_back(operation.name());
  }
  {
    tessera::v1::VerifyRequest request;
    request.mutable_source()->set_path(server_->data("source"));
    grpc::ClientContext context;
    Operation operation;
    ASSERT_TRUE(server_->jobs().Verify(&context, request, &operation).ok());
    names.push_back(operation.name());
  }
  for (const std::string& name : names) {
    const auto ended = server_->Wait(name);
    ASSERT_OK(ended);
    EXPECT_OK(ErrorOf(*ended));
  }
  tessera::v1::VerifyReport report;
  ASSERT_TRUE(server_->Get(names[2])->response().UnpackTo(&report));
  EXPECT_EQ(report.num_findings(), 0u);
}

TEST_F(JobServiceTest, ACallWhoseDiskDoesNotAnswerEnds) {
  server_ = nullptr;
  JobServer::Settings settings;
  settings.options.disk_timeout = absl::Seconds(1);
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  absl::Notification answers;
  server_->fs().SetHook([&](absl::string_view operation, absl::string_view) {
    if (operation == "OpenForRead") answers.WaitForNotification();
  });
  auto request = server_->Request("out");
  request.mutable_options()->set_validate_only(true);
  EXPECT_THAT(server_->Convert(request).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("of root " + server_->data(""))));
  // Calls that do not read a checkpoint are answered throughout.
  EXPECT_OK(server_->List());
  answers.Notify();
  EXPECT_OK(server_->Convert(request));
  server_->fs().SetHook(nullptr);
}

TEST_F(JobServiceTest, ValidateOnlyPlans) {
  const std::string before = ListFiles(dir_.Join("data"));
  auto request = server_->Request("out");
  request.mutable_options()->set_validate_only(true);
  const auto plan = server_->Convert(request);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->done());
  EXPECT_EQ(plan->name(), "");
  tessera::v1::ConvertResult result;
  ASSERT_TRUE(plan->response().UnpackTo(&result));
  EXPECT_EQ(result.num_files(), 3u);
  EXPECT_EQ(ListFiles(dir_.Join("data")), before);
  request.mutable_source()->set_path(server_->data("none"));
  EXPECT_THAT(server_->Convert(request).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(server_->List()->operations_size(), 0);
}

TEST_F(JobServiceTest, ARefusalNamesTheField) {
  auto request = server_->Request("out");
  request.mutable_options()->set_memory_bytes(1);
  EXPECT_THAT(server_->Convert(request).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("options.memory_bytes")));
}

TEST_F(JobServiceTest, WatchersHearOfTheEnd) {
  absl::Notification reached;
  absl::Notification open;
  server_->fs().SetHook(
      [&](absl::string_view operation, absl::string_view path) {
        if (operation != "Create" || reached.HasBeenNotified()) return;
        if (!absl::StrContains(path, "out/")) return;
        reached.Notify();
        open.WaitForNotification();
      });
  const auto operation = server_->Convert(server_->Request("out"));
  ASSERT_OK(operation);
  reached.WaitForNotification();
  std::vector<Operation> heard;
  grpc::ClientContext context;
  tessera::v1::WatchJobRequest request;
  request.set_name(operation->name());
  const auto reader = server_->jobs().WatchJob(&context, request);
  Operation now;
  ASSERT_TRUE(reader->Read(&now));
  EXPECT_EQ(MetadataOf(now).state(), JobMetadata::RUNNING);
  EXPECT_EQ(MetadataOf(now).files_total(), 3u);
  open.Notify();
  while (reader->Read(&now)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(MetadataOf(now).state(), JobMetadata::SUCCEEDED);
  // A job that has ended is reported once.
  ASSERT_OK(Watch(operation->name(), heard));
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_TRUE(heard[0].done());
  EXPECT_TRUE(heard[0].has_response());
  server_->fs().SetHook(nullptr);
}

TEST_F(JobServiceTest, NobodyWatchesWhatIsNotTheirs) {
  std::vector<Operation> heard;
  EXPECT_THAT(Watch("operations/f47ac10b-58cc-4372-a567-0e02b2c3d479", heard),
              StatusIs(absl::StatusCode::kNotFound));
  JobServer::Settings settings;
  settings.tokens = "a " + std::string(64, '0') + "\n";
  server_.reset();
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  EXPECT_THAT(Watch("operations/f47ac10b-58cc-4372-a567-0e02b2c3d479", heard),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(JobServiceTest, WatchersThatVanishOrDoNotReadHoldUpNothing) {
  absl::Notification open;
  server_->fs().SetHook(
      [&](absl::string_view operation, absl::string_view path) {
        if (operation == "Create" && absl::StrContains(path, "out/")) {
          open.WaitForNotification();
        }
      });
  const auto operation = server_->Convert(server_->Request("out"));
  ASSERT_OK(operation);
  tessera::v1::WatchJobRequest request;
  request.set_name(operation->name());
  grpc::ClientContext vanishing;
  grpc::ClientContext idle;
  auto first = server_->jobs().WatchJob(&vanishing, request);
  const auto second = server_->jobs().WatchJob(&idle, request);
  Operation now;
  ASSERT_TRUE(first->Read(&now));
  vanishing.TryCancel();
  EXPECT_FALSE(first->Finish().ok());
  open.Notify();
  const auto ended = server_->Wait(operation->name());
  ASSERT_OK(ended);
  EXPECT_OK(ErrorOf(*ended));
  while (second->Read(&now)) {
  }
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_TRUE(now.done());
  server_->fs().SetHook(nullptr);
}

TEST_F(JobServiceTest, WatchersAreSentAwayWhenTheServerDrains) {
  JobServer::Settings settings;
  settings.hold_memory = true;
  server_.reset();
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  const auto operation = server_->Convert(server_->Request("out"));
  ASSERT_OK(operation);
  grpc::ClientContext context;
  tessera::v1::WatchJobRequest request;
  request.set_name(operation->name());
  const auto reader = server_->jobs().WatchJob(&context, request);
  Operation now;
  ASSERT_TRUE(reader->Read(&now));
  EXPECT_EQ(MetadataOf(now).state(), JobMetadata::PENDING);
  server_->manager().Drain(absl::ZeroDuration());
  while (reader->Read(&now)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The plans of a root are made one after the other.
TEST_F(JobServiceTest, PlansOfCallersThatHaveLeftAreNotMade) {
  MakeCheckpoint(dir_.Join("data/left"), 3, 1 << 16);
  const auto plan = [&](absl::string_view source) {
    auto request = server_->Request("out");
    request.mutable_source()->set_path(server_->data(source));
    request.mutable_options()->set_validate_only(true);
    return request;
  };
  // Owned by the hook too, which may outlive this function.
  const auto reached = std::make_shared<Signal>();
  const auto open = std::make_shared<Signal>();
  const auto num_looks = std::make_shared<std::atomic<int>>(0);
  server_->fs().SetHook(
      [=](absl::string_view operation, absl::string_view path) {
        if (operation != "OpenForRead") return;
        if (absl::StrContains(path, "data/left")) ++*num_looks;
        if (!absl::StrContains(path, "data/source")) return;
        reached->Give();
        open->Wait();
      });
  std::jthread first([&] { EXPECT_OK(server_->Convert(plan("source"))); });
  reached->Wait();
  {
    grpc::ClientContext context;
    server_->Prepare(context);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(100));
    Operation operation;
    EXPECT_EQ(server_->jobs()
                  .Convert(&context, plan("left"), &operation)
                  .error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  // The server learns of it before it reads the next call of the connection.
  EXPECT_OK(server_->List());
  std::jthread last([&] { EXPECT_OK(server_->Convert(plan("source"))); });
  open->Give();
  first.join();
  last.join();
  EXPECT_EQ(*num_looks, 0);
}

TEST_F(JobServiceTest, ThePlanOfOneClientHoldsUpNoOther) {
  MakeCheckpoint(dir_.Join("data/long"), 3, 1 << 16);
  JobServer::Settings settings;
  // The digests of "one" and "two".
  settings.tokens =
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
      "write=" +
      dir_.Join("data") +
      "\n"
      "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
      "write=" +
      dir_.Join("data") + "\n";
  server_ = nullptr;
  server_ = std::make_unique<JobServer>(dir_.path(), settings);
  JobClient other(dir_.path());
  other.Connect(server_->address());
  server_->set_token("one");
  other.set_token("two");
  auto request = server_->Request("out");
  request.mutable_options()->set_validate_only(true);
  auto long_request = request;
  long_request.mutable_source()->set_path(server_->data("long"));
  Gate gate(*server_, "OpenForRead", "data/long");
  std::jthread held([&] { EXPECT_OK(server_->Convert(long_request)); });
  gate.WaitUntilReached();
  EXPECT_OK(other.Convert(request));
  gate.Open();
}

TEST_F(JobServiceTest, ThePlanForManyRanksIsMemoryOfTheJob) {
  auto request = server_->Request("out");
  request.mutable_options()->set_validate_only(true);
  auto* const axis = request.mutable_mesh()->add_axes();
  axis->set_name("shard");
  axis->set_size(1 << 20);
  EXPECT_THAT(server_->Convert(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("onto so many ranks")));
}

}  // namespace
}  // namespace dcp::server
