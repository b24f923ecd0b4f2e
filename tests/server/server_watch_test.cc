// SPDX-License-Identifier: Apache-2.0
// The signs by which an operator watches a server: health, metrics, and the
// log.

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/log.h"
#include "gmock/gmock.h"
#include "google/longrunning/operations_proto.pb.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/transport/reflection_service.h"
#include "server/transport/self_call.h"
#include "server/transport/service_health.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tests/server/process/http_get.h"
#include "tests/server/server_fixture.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
namespace v1 = tessera::v1;

// A request for a service's health, as protobuf encodes it.
std::string HealthRequest(absl::string_view service) {
  return absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())),
                      service);
}

// The value for a key in a log line; empty if it is not there.
std::string FieldValue(absl::string_view line, absl::string_view key) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::ConsumePrefix(&word, absl::StrCat(key, "="))) {
      return std::string(word);
    }
  }
  return "";
}

// The lines that were logged while this lived.
class LogLines {
 public:
  LogLines() {
    SetLogSink([this](LogSeverity, absl::string_view line) {
      absl::MutexLock lock(&mutex_);
      absl::StrAppend(&text_, line, "\n");
      changed_.SignalAll();
    });
  }
  ~LogLines() {
    SetLogSink([](LogSeverity, absl::string_view) {});
  }

  // Waits for a line that contains both texts, and returns the first.
  std::string WaitFor(absl::string_view a, absl::string_view b = "") {
    absl::MutexLock lock(&mutex_);
    while (true) {
      for (absl::string_view line : absl::StrSplit(text_, '\n')) {
        if (absl::StrContains(line, a) && absl::StrContains(line, b)) {
          return std::string(line);
        }
      }
      changed_.Wait(&mutex_);
    }
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::string text_;
};

class ServerWatchTest : public ServerFixture {
 protected:
  std::string GetHealth(absl::string_view service) {
    GenericStream call(Plaintext(), kHealthCheck, HealthRequest(service));
    return call.Read();
  }

  // Starts a job to that destination; returns the job's id.
  std::string Convert(absl::string_view destination) {
    const auto jobs = v1::JobService::NewStub(Plaintext());
    v1::ConvertRequest request;
    request.mutable_source()->set_path(path_);
    request.mutable_destination()->set_path(
        dir_.Join(absl::StrCat("data/", destination)));
    request.set_format(v1::FORMAT_DCP);
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer one");
    google::longrunning::Operation operation;
    const grpc::Status status = jobs->Convert(&context, request, &operation);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return operation.name().substr(operation.name().find('/') + 1);
  }

  void ReadTensor() {
    const auto stub = v1::CheckpointService::NewStub(Plaintext());
    v1::ReadTensorsRequest request;
    request.mutable_source()->set_path(path_);
    request.mutable_parts()->add_parts()->set_name("t");
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer one");
    const auto reader = stub->ReadTensors(&context, request);
    v1::ReadTensorsResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  }

  // Waits until the health is that.
  void AwaitHealth(absl::string_view service, absl::string_view health) {
    GenericStream watch(Plaintext(), kHealthWatch, HealthRequest(service));
    std::string now;
    do {
      now = watch.Read();
      ASSERT_NE(now, "") << service;
    } while (now != health);
  }

  const std::string path_ =
      dir_.WriteFile("data/t.safetensors", SafetensorsImage(10));
};

TEST_F(ServerWatchTest, RootsHaveSeparateHealth) {
  std::filesystem::create_directory(dir_.Join("other"));
  options_.roots.push_back({.path = dir_.Join("other")});
  LogLines log;
  {
    auto server = Server::Create(options_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    std::filesystem::remove(dir_.Join("other"));
    ASSERT_OK_AND_ASSIGN(address_, server_->Start());
  }
  AwaitHealth("root/2", kNotServing);
  EXPECT_THAT(log.WaitFor("event=root_down"),
              HasSubstr(absl::StrCat("root=", dir_.Join("other"), " error=")));
  EXPECT_EQ(GetHealth("root/1"), kServing);
  EXPECT_EQ(GetHealth("root/3"), "");
  // The others go on.
  for (const char* service : {"", kCheckpointServiceName, kJobServiceName}) {
    EXPECT_EQ(GetHealth(service), kServing) << service;
  }
}

TEST_F(ServerWatchTest, WithoutRootsOnlyTheServicesAreUnhealthy) {
  auto server = Server::Create(options_);
  ASSERT_OK(server);
  server_ = *std::move(server);
  std::filesystem::rename(dir_.Join("data"), dir_.Join("away"));
  ASSERT_OK_AND_ASSIGN(address_, server_->Start());
  for (const char* service :
       {"root/1", kCheckpointServiceName, kJobServiceName}) {
    AwaitHealth(service, kNotServing);
  }
  EXPECT_EQ(GetHealth(""), kServing);
  EXPECT_EQ(GetHealth(kOperationsName), kServing);
}

// A gRPC server with the health service, and one other.
struct BareServer {
  BareServer() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&reflection);
    server = builder.BuildAndStart();
  }

  int port = 0;
  ReflectionService reflection{std::vector<std::string>()};
  std::unique_ptr<grpc::Server> server;
};

TEST_F(ServerWatchTest, HealthDependsOnTheJournalAndOnRoots) {
  const BareServer bare;
  const auto& server = bare.server;
  address_ = absl::StrCat("127.0.0.1:", bare.port);
  ServiceHealth health(*server->GetHealthCheckService(), 2, {1, 2});
  health.SetJournal(false);
  EXPECT_EQ(GetHealth(kJobServiceName), kNotServing);
  EXPECT_EQ(GetHealth(kCheckpointServiceName), kServing);
  health.SetRoot(1, /*is_readable=*/false, /*is_usable=*/false);
  health.SetRoot(2, /*is_readable=*/true, /*is_usable=*/false);
  EXPECT_EQ(GetHealth("root/2"), kNotServing);
  EXPECT_EQ(GetHealth(kCheckpointServiceName), kServing) << "it can be read";
  health.SetRoot(2, false, false);
  health.SetJournal(true);
  EXPECT_EQ(GetHealth(kCheckpointServiceName), kNotServing);
  EXPECT_EQ(GetHealth(kJobServiceName), kNotServing);
  health.SetRoot(1, true, true);
  EXPECT_EQ(GetHealth("root/1"), kServing);
  EXPECT_EQ(GetHealth(kCheckpointServiceName), kServing);
  EXPECT_EQ(GetHealth(kJobServiceName), kServing);
  // One of three roots is in a store, which nobody looks at.
  ServiceHealth with_store(*server->GetHealthCheckService(), 3, {1, 3});
  with_store.SetRoot(1, false, false);
  with_store.SetRoot(3, false, false);
  EXPECT_EQ(GetHealth(kCheckpointServiceName), kServing);
}

TEST_F(ServerWatchTest, LogLinesOfAJobNameTheCall) {
  LogLines log;
  Start();
  const std::string id = Convert("out");
  const std::string call =
      FieldValue(log.WaitFor("event=call", "JobService.Convert"), "call");
  EXPECT_NE(call, "");
  for (const char* event : {"job_submitted", "job_started", "job_ended"}) {
    const std::string line =
        log.WaitFor(absl::StrCat("event=", event, " id=", id));
    EXPECT_EQ(FieldValue(line, "call"), call) << line;
  }
}

TEST_F(ServerWatchTest, IsAliveUntilItEnds) {
  Start();
  for (int i = 0; i < 3; ++i) server_->CheckAlive();
  server_->Drain();
  server_->CheckAlive();
}

TEST_F(ServerWatchTest, SelfCallWaitsForAnAnswer) {
  BareServer bare;
  SelfCall call(*bare.server);
  call.WaitForAnswer();
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) call.WaitForAnswer();
  });
  call.End();
  bare.server->Shutdown();
  bare.server = nullptr;
  other.join();
  call.WaitForAnswer();
}

TEST_F(ServerWatchTest, ManualListsAllMetrics) {
  options_.metrics_listen = "127.0.0.1:0";
  // The digest of "one".
  options_.tokens_file = dir_.WriteFile(
      "tokens",
      absl::StrCat(
          "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
          "write=",
          dir_.Join("data"), "\n"));
  LogLines log;
  Start();
  // Some metrics appear when something has happened.
  const std::string id = Convert("out");
  log.WaitFor(absl::StrCat("event=job_ended id=", id));
  ReadTensor();
  log.WaitFor("event=stream");
  const std::string address =
      FieldValue(log.WaitFor("event=metrics"), "address");
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  const std::string metrics = HttpGet(port, "/metrics");
  const std::string manual = testing::ReadFile("server/README.md");
  std::set<std::string> names;
  for (absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::ConsumePrefix(&line, "# TYPE tessera_")) continue;
    names.insert(absl::StrCat("tessera_", line.substr(0, line.find(' '))));
  }
  for (const std::string& name : names) {
    EXPECT_TRUE(absl::StrContains(manual, absl::StrCat("`", name, "`")) ||
                absl::StrContains(manual, absl::StrCat("`", name, "{")))
        << name;
  }
  for (const char* name : {"tessera_root_up", "tessera_jobs_total",
                           "tessera_client_streamed_bytes_total"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

}  // namespace
}  // namespace dcp::server
