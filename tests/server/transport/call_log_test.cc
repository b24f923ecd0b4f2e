// SPDX-License-Identifier: Apache-2.0

#include "server/transport/call_log.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "server/process/metrics.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace v1 = tessera::v1;

// Answers Inspect with an error and holds GetMetadata until the client leaves.
class FakeService : public v1::CheckpointService::CallbackService {
 public:
  absl::Notification entered;

  // Of the last Inspect.
  std::string seen_id() {
    absl::MutexLock lock(&mutex_);
    return seen_id_;
  }

 private:
  class Held : public grpc::ServerWriteReactor<v1::GetMetadataResponse> {
   public:
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  grpc::ServerUnaryReactor* Inspect(grpc::CallbackServerContext* context,
                                    const v1::InspectRequest*,
                                    v1::InspectResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    {
      absl::MutexLock lock(&mutex_);
      seen_id_ = CallId(*context);
    }
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "two\nlines"});
    return reactor;
  }

  grpc::ServerWriteReactor<v1::GetMetadataResponse>* GetMetadata(
      grpc::CallbackServerContext*, const v1::GetMetadataRequest*) override {
    entered.Notify();
    return new Held;
  }

  absl::Mutex mutex_;
  std::string seen_id_ ABSL_GUARDED_BY(mutex_);
};

class CallLogTest : public ::testing::Test {
 protected:
  CallLogTest() {
    SetLogSink([this](LogSeverity, absl::string_view line) {
      absl::MutexLock lock(&mutex_);
      absl::StrAppend(&lines_, line, "\n");
    });
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    std::vector<
        std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(log_.NewInterceptorFactory());
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::CheckpointService::NewStub(channel_);
  }

  ~CallLogTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  std::string lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

  absl::Mutex mutex_;
  std::string lines_;
  Metrics metrics_;
  CallLog log_{metrics_};
  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

TEST_F(CallLogTest, LogsAndCountsEachCall) {
  grpc::ClientContext context;
  v1::InspectResponse response;
  EXPECT_EQ(stub_->Inspect(&context, {}, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(log_.WaitUntilIdle());
  EXPECT_THAT(lines(),
              HasSubstr("event=call call=1 method=CheckpointService.Inspect "
                        "code=NOT_FOUND seconds=0."));
  EXPECT_THAT(lines(), HasSubstr("peer=ipv4:127.0.0.1:"));
  EXPECT_THAT(lines(), HasSubstr("message=\"two\\nlines\"\n"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("{code=\"NOT_FOUND\",method=\"CheckpointService."
                        "Inspect\"} 1\n"));
}

TEST_F(CallLogTest, HandlersKnowTheCallId) {
  for (const char* expected : {"1", "2"}) {
    grpc::ClientContext context;
    context.AddMetadata("tessera-call-id", "of the client");
    v1::InspectResponse response;
    stub_->Inspect(&context, {}, &response);
    EXPECT_TRUE(log_.WaitUntilIdle());
    EXPECT_EQ(service_.seen_id(), expected);
    EXPECT_THAT(lines(), HasSubstr(absl::StrCat("call=", expected, " ")));
  }
}

TEST_F(CallLogTest, InspectionsLogThePath) {
  {
    v1::InspectRequest request;
    request.mutable_source()->set_path("/a b");
    grpc::ClientContext context;
    v1::InspectResponse response;
    stub_->Inspect(&context, request, &response);
  }
  {
    v1::VerifyCheckpointRequest request;
    request.mutable_source()->set_path("/c");
    grpc::ClientContext context;
    stub_->Verify(&context, request)->Finish();
  }
  {
    v1::DiffRequest request;
    request.mutable_a()->set_path("/d");
    request.mutable_b()->set_path("/e");
    grpc::ClientContext context;
    stub_->Diff(&context, request)->Finish();
  }
  {
    v1::ReadObjectsRequest request;
    request.mutable_source()->set_path("/f");
    grpc::ClientContext context;
    stub_->ReadObjects(&context, request)->Finish();
  }
  {
    v1::GetMetadataRequest request;
    request.mutable_source()->set_path("/g");
    grpc::ClientContext context;
    auto reader = stub_->GetMetadata(&context, request);
    service_.entered.WaitForNotification();
    context.TryCancel();
    reader->Finish();
  }
  EXPECT_TRUE(log_.WaitUntilIdle());
  for (const char* line :
       {"Inspect code=NOT_FOUND .* path=\"/a b\" message=", "Verify .* path=/c",
        "Diff .* path=/d path_b=/e", "ReadObjects .* path=/f",
        "GetMetadata code=CANCELLED .* path=/g"}) {
    EXPECT_THAT(lines(), ::testing::ContainsRegex(line));
  }
}

TEST_F(CallLogTest, UnknownMethodsShareOneName) {
  grpc::GenericStub stub(channel_);
  constexpr int kCalls = 300;
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    const grpc::Slice empty;
    const grpc::ByteBuffer request(&empty, 1);
    grpc::ByteBuffer response;
    absl::Notification done;
    grpc::Status ended;
    stub.UnaryCall(
        &context,
        absl::StrCat(i % 2 == 0 ? "/tessera.v1.JobService/" : "/x.Y/", "Method",
                     i),
        {}, &request, &response, [&](grpc::Status status) {
          ended = std::move(status);
          done.Notify();
        });
    done.WaitForNotification();
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_TRUE(log_.WaitUntilIdle());
  EXPECT_THAT(metrics_.Text(),
              HasSubstr(absl::StrCat("method=\"unknown\"} ", kCalls, "\n")));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("Method1")));
  // The first hundred are logged, and then as many as the time allows.
  EXPECT_THAT(lines(), HasSubstr(" method=unknown"));
  const std::string all = lines();
  EXPECT_LT(std::count(all.begin(), all.end(), '\n'), kCalls);
}

TEST_F(CallLogTest, WaitsForCallsInProgress) {
  grpc::ClientContext context;
  auto reader = stub_->GetMetadata(&context, {});
  service_.entered.WaitForNotification();
  EXPECT_EQ(log_.num_calls(), 1);
  context.TryCancel();
  EXPECT_TRUE(log_.WaitUntilIdle());
  EXPECT_EQ(log_.num_calls(), 0);
  reader->Finish();
  EXPECT_THAT(lines(), HasSubstr("GetMetadata code=CANCELLED"));
}

TEST_F(CallLogTest, WaitingCanBeInterrupted) {
  grpc::ClientContext context;
  auto reader = stub_->GetMetadata(&context, {});
  service_.entered.WaitForNotification();
  std::jthread other([&] { log_.Interrupt(); });
  EXPECT_FALSE(log_.WaitUntilIdle());
  context.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace dcp::server
