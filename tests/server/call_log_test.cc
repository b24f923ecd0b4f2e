#include "server/call_log.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/metrics.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::server {
namespace {

using ::testing::HasSubstr;
namespace v1 = tessera::v1;

// Answers Inspect with an error and holds GetMetadata until its client leaves.
class FakeService : public v1::CheckpointService::CallbackService {
 public:
  absl::Notification entered;

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
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "two\nlines"});
    return reactor;
  }

  grpc::ServerWriteReactor<v1::GetMetadataResponse>* GetMetadata(
      grpc::CallbackServerContext*, const v1::GetMetadataRequest*) override {
    entered.Notify();
    return new Held;
  }
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
    stub_ = v1::CheckpointService::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
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
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

TEST_F(CallLogTest, EachCallIsALineAndACount) {
  grpc::ClientContext context;
  v1::InspectResponse response;
  EXPECT_EQ(stub_->Inspect(&context, {}, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(log_.WaitUntilIdle(absl::InfiniteFuture()));
  EXPECT_THAT(lines(), HasSubstr("event=call method=CheckpointService.Inspect "
                                 "code=NOT_FOUND seconds=0."));
  EXPECT_THAT(lines(), HasSubstr("peer=ipv4:127.0.0.1:"));
  EXPECT_THAT(lines(), HasSubstr("message=\"two\\nlines\"\n"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("{code=\"NOT_FOUND\",method=\"CheckpointService."
                        "Inspect\"} 1\n"));
}

TEST_F(CallLogTest, CallsThatGoOnAreWaitedFor) {
  grpc::ClientContext context;
  auto reader = stub_->GetMetadata(&context, {});
  service_.entered.WaitForNotification();
  EXPECT_EQ(log_.num_calls(), 1);
  EXPECT_FALSE(log_.WaitUntilIdle(absl::InfinitePast()));
  context.TryCancel();
  EXPECT_TRUE(log_.WaitUntilIdle(absl::InfiniteFuture()));
  EXPECT_EQ(log_.num_calls(), 0);
  reader->Finish();
  EXPECT_THAT(lines(), HasSubstr("GetMetadata code=CANCELLED"));
}

TEST_F(CallLogTest, WaitingIsInterrupted) {
  grpc::ClientContext context;
  auto reader = stub_->GetMetadata(&context, {});
  service_.entered.WaitForNotification();
  std::jthread other([&] { log_.Interrupt(); });
  EXPECT_FALSE(log_.WaitUntilIdle(absl::InfiniteFuture()));
  context.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace dcp::server
