// SPDX-License-Identifier: Apache-2.0
// Streams under limits: slow and vanished clients, hung disks, and little
// memory.
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/reading/tensor_stream.h"
#include "tests/server/reading/checkpoint_server.h"
#include "tests/server/reading/stream_samples.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::SampleTensor;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

// A callback client that takes `max_messages` and then no more.
class IdleReader final
    : public grpc::ClientReadReactor<v1::ReadTensorsResponse> {
 public:
  IdleReader(v1::CheckpointService::Stub& stub,
             const v1::ReadTensorsRequest& request, int max_messages)
      : request_(request), left_(max_messages) {
    stub.async()->ReadTensors(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok && response_.has_chunk()) {
      num_bytes_ += response_.chunk().data().size();
    }
    if (ok && --left_ != 0) {
      StartRead(&response_);
    } else {
      stopped_.Notify();
    }
  }
  void OnDone(const grpc::Status& status) override {
    status_ = FromRpcStatus(status, "ReadTensors");
    done_.Notify();
  }

  void WaitUntilItStops() { stopped_.WaitForNotification(); }
  absl::Status Wait() {
    done_.WaitForNotification();
    return status_;
  }
  void Cancel() { context_.TryCancel(); }
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  grpc::ClientContext context_;
  const v1::ReadTensorsRequest request_;
  v1::ReadTensorsResponse response_;
  int left_;
  uint64_t num_bytes_ = 0;
  absl::Status status_;
  absl::Notification stopped_;
  absl::Notification done_;
};

TEST(TensorStreamLimits, SlowClientsHoldOnlyTheirWindows) {
  ServerOptions options;
  options.max_memory_bytes = 256 * kMiB;
  CheckpointServer server(options);
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{16'384, 1024});  // 64 MiB
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  std::vector<std::unique_ptr<IdleReader>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<IdleReader>(server.stub(), request, 2));
    slow.back()->WaitUntilItStops();
  }
  EXPECT_EQ(server.service().num_streams(), 6);
  EXPECT_LE(server.budget().used_bytes(), 256 * kMiB);
  // A stream that is read is not blocked by them.
  const auto stub = server.NewStub();
  const Received received = CheckpointServer::ReadBy(*stub, request);
  ASSERT_OK(received.status);
  EXPECT_TRUE(received.bytes == tensors[0].bytes);
  for (const auto& reader : slow) reader->Cancel();
  for (const auto& reader : slow) {
    EXPECT_THAT(reader->Wait(),
                StatusIs(absl::StatusCode::kCancelled, Not("")));
  }
  server.Stop();
  EXPECT_EQ(server.budget().used_bytes(), 0u);
}

TEST(TensorStreamLimits, EndsIdleStreams) {
  ServerOptions options;
  options.max_memory_bytes = 256 * kMiB;
  CheckpointServer server(options, absl::Milliseconds(100));
  const uint64_t before = server.budget().used_bytes();
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{16'384, 1024});  // 64 MiB
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  std::vector<std::unique_ptr<IdleReader>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<IdleReader>(server.stub(), request, 2));
  }
  // Nobody cancels these calls.
  for (const auto& reader : slow) reader->WaitUntilItStops();
  while (server.service().num_streams() > 0) std::this_thread::yield();
  while (server.budget().used_bytes() > before + 64 * kMiB) {
    std::this_thread::yield();  // all except idle windows
  }
  for (const auto& reader : slow) {
    reader->Cancel();
    EXPECT_THAT(reader->Wait(),
                StatusIs(absl::StatusCode::kCancelled, Not("")));
  }
}

// Like a mount that loses the server during a read.
TEST(TensorStreamLimits, EndsStreamsOnAHangingDisk) {
  ServerOptions options;
  options.disk_timeout = absl::Seconds(1);
  absl::Notification answers;  // outlives the threads that wait for it
  CheckpointServer server(options);
  const uint64_t before = server.budget().used_bytes();
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{8192, 1024});  // 32 MiB
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  auto last_byte = request;  // opens the checkpoint
  last_byte.set_resume_offset(tensors[0].bytes.size() - 1);
  ASSERT_OK(server.Read(last_byte).status);
  server.fs().SetHook([&](absl::string_view operation, absl::string_view) {
    if (operation == "StatFile") answers.WaitForNotification();
  });
  const Received received = server.Read(request);
  EXPECT_EQ(received.num_headers, 1u);
  EXPECT_THAT(received.status, StatusIs(absl::StatusCode::kUnavailable,
                                        HasSubstr("has not answered for 1s")));
  EXPECT_GT(RetryAfterMs(received.status), 0);
  while (server.service().num_streams() > 0) std::this_thread::yield();
  // Only the idle window is left.
  EXPECT_LE(server.budget().used_bytes(), before + 4 * kMiB);
  answers.Notify();
  EXPECT_OK(server.Read(request).status);
}

// Without the limit, 48 such requests would take gigabytes in addition to the
// budget.
TEST(TensorStreamLimits, CountsRequestMemoryInTheBudget) {
  ServerOptions options;
  options.max_memory_bytes = 64 * kMiB;
  CheckpointServer server(options);
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{4});
  auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  ASSERT_OK(server.Read(request).status);
  for (int i = 0; i < 400'000; ++i) {
    request.mutable_parts()->add_parts()->set_name("w");
  }
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("client-memory")));
}

// Half of the old bytes and half of the new ones would have the right sums.
TEST(TensorStreamLimits, ChangedFileEndsTheStream) {
  CheckpointServer server;
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{16'384, 1024});  // 64 MiB
  const std::string path = SaveAll(server, "dcp", tensors);
  const auto request = WholeRequest(path, tensors);
  grpc::ClientContext context;
  const auto reader = server.stub().ReadTensors(&context, request);
  v1::ReadTensorsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    if (file.path().extension() != ".distcp") continue;
    std::filesystem::last_write_time(
        file.path(), file.last_write_time() + std::chrono::seconds(1));
  }
  while (reader->Read(&response)) {
  }
  EXPECT_THAT(FromRpcStatus(reader->Finish(), "ReadTensors"),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("changed while it was read")));
  // The present state is consistent.
  EXPECT_OK(server.Read(request).status);
}

TEST(TensorStreamLimits, VanishedClientsFreeEverything) {
  CheckpointServer server;
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{8192, 1024});  // 32 MiB
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) {
    const int num_messages = 1 + static_cast<int>(random() % 20);
    IdleReader reader(server.stub(), request, num_messages);
    if (i % 4 != 0) reader.WaitUntilItStops();
    reader.Cancel();
    reader.Wait().IgnoreError();  // cancelled, or finished just before
    if (i % 4 == 0) reader.WaitUntilItStops();
  }
  EXPECT_OK(server.Read(request).status);
  server.Stop();
  EXPECT_EQ(server.budget().used_bytes(), 0u);
  EXPECT_EQ(server.budget().num_waiting(), 0u);
}

TEST(TensorStreamLimits, TooManyStreamsAreRefused) {
  ServerOptions options;
  options.max_streams = 2;
  options.max_streams_per_client = 3;  // larger, so that max_streams counts
  CheckpointServer server(options);
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{16'384, 1024});
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  IdleReader first(server.stub(), request, 2);
  IdleReader second(server.stub(), request, 2);
  first.WaitUntilItStops();
  second.WaitUntilItStops();
  const absl::Status status = server.Read(request).status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("2 streams")));
  EXPECT_GT(RetryAfterMs(status), 0);
  first.Cancel();
  second.Cancel();
  first.Wait().IgnoreError();
  second.Wait().IgnoreError();
  while (server.service().num_streams() > 0) std::this_thread::yield();
  EXPECT_OK(server.Read(request).status);
}

TEST(TensorStreamLimits, WithoutMemoryAStreamWaitsUntilItsDeadline) {
  ServerOptions options;
  options.max_memory_bytes = 128 * kMiB;
  CheckpointServer server(options);
  const auto tensors = SomeTensors();
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  ASSERT_OK(server.Read(request).status);
  std::vector<Reservation> rest;
  grpc::StatusCode code;
  do {
    // Takes everything except for the idle windows, which make room but not
    // enough. A stream before this one may still give some back.
    ASSERT_OK(server.budget().Request(
        MemoryUse::kCall,
        server.budget().limit_bytes() - server.budget().used_bytes(),
        [&](Reservation memory) { rest.push_back(std::move(memory)); }));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(100));
    const auto reader = server.stub().ReadTensors(&context, request);
    v1::ReadTensorsResponse response;
    while (reader->Read(&response)) {
    }
    code = reader->Finish().error_code();
  } while (code == grpc::StatusCode::OK);
  EXPECT_EQ(code, grpc::StatusCode::DEADLINE_EXCEEDED);
  rest.clear();
  EXPECT_OK(server.Read(request).status);
}

TEST(TensorStreamLimits, DrainRefusesNewCallsOnly) {
  CheckpointServer server;
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{16'384, 1024});
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  grpc::ClientContext context;
  const auto reader = server.stub().ReadTensors(&context, request);
  v1::ReadTensorsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server.service().Drain();
  const absl::Status status = server.Read(request).status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("shutting down")));
  EXPECT_GT(RetryAfterMs(status), 0);
  uint64_t num_bytes = 0;
  while (reader->Read(&response)) num_bytes += response.chunk().data().size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(num_bytes, tensors[0].bytes.size());
}

TEST(TensorStreamLimits, RunsAThousandSmallStreamsAtOnce) {
  ServerOptions options;
  options.max_memory_bytes = 96 * kMiB;
  options.client_memory_bytes = options.max_memory_bytes;
  options.max_streams_per_client = options.max_streams;
  CheckpointServer server(options);
  auto tensors = SomeTensors();
  const std::string path = SaveAll(server, "dcp", tensors);
  tensors.pop_back();  // "big"
  const auto request = WholeRequest(path, tensors);
  const std::string whole = WholeBytes(tensors);
  std::vector<std::unique_ptr<IdleReader>> readers;
  for (int i = 0; i < 1000; ++i) {
    readers.push_back(std::make_unique<IdleReader>(server.stub(), request, -1));
  }
  for (const auto& reader : readers) {
    ASSERT_OK(reader->Wait());
    EXPECT_EQ(reader->num_bytes(), whole.size());
  }
}

}  // namespace
}  // namespace dcp::server
