// SPDX-License-Identifier: Apache-2.0
// CheckpointServer: a CheckpointService behind a real socket, with real
// checkpoints below a root, and a client that checks the answers. For tests.
#ifndef TESTS_SERVER_READING_CHECKPOINT_SERVER_H_
#define TESTS_SERVER_READING_CHECKPOINT_SERVER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "server/access/access.h"
#include "server/access/admission.h"
#include "server/memory/memory_budget.h"
#include "server/memory/memory_shares.h"
#include "server/options/server_options.h"
#include "server/process/metrics.h"
#include "server/reading/checkpoint_service.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/hooked_file_system.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {

// The result of a tensor stream.
struct Received {
  absl::Status status;
  tessera::v1::ReadTensorsResponse::Header header;  // all headers' parts
  uint64_t num_headers = 0;
  uint64_t num_chunks = 0;
  std::string bytes;  // from the requested offset
  uint32_t part = 0;  // the last chunk's part
  uint64_t part_begin = 0;
};

class CheckpointServer {
 public:
  explicit CheckpointServer(ServerOptions options = {},
                            absl::Duration stall_timeout = kStallTimeout)
      : root_(std::filesystem::canonical(dir_.path()).string()),
        access_(*Access::Load({{.path = root_, .writable = true}}, "")),
        admission_(access_,
                   {.num_streams = StreamsPerClient(options),
                    .memory_bytes = ClientMemoryBytes(options),
                    .requests_per_second = options.max_requests_per_second}),
        budget_(options.max_memory_bytes,
                DivideMemory(options.max_memory_bytes, options.num_readers)
                    .calls_bytes) {
    service_ = std::make_unique<CheckpointService>(
        fs_, admission_, budget_, metrics_, options, stall_timeout);
    EXPECT_OK(service_->Start());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = NewStub();
  }
  ~CheckpointServer() { Stop(); }

  // Ends all calls and waits for them.
  void EndCalls() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_ = nullptr;
  }
  // Ends all calls, then waits for the service's own work.
  void Stop() {
    EndCalls();
    service_ = nullptr;
  }

  // The stub has a connection that it does not share.
  std::unique_ptr<tessera::v1::CheckpointService::Stub> NewStub() const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);
    return tessera::v1::CheckpointService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials(),
        arguments));
  }

  HookedFileSystem& fs() { return fs_; }
  const testing::TempDir& dir() const { return dir_; }
  std::string Path(absl::string_view name) const {
    return absl::StrCat(root_, "/", name);
  }
  Access& access() { return access_; }
  MemoryBudget& budget() { return budget_; }
  Metrics& metrics() { return metrics_; }
  CheckpointService& service() { return *service_; }
  tessera::v1::CheckpointService::Stub& stub() { return *stub_; }

  // A checkpoint in DCP's format.
  std::string Save(absl::string_view name, const testing::SampleState& state) {
    SingleProcessCoordinator coordinator;
    const std::string path = Path(name);
    EXPECT_OK(dcp::Save(fs_, path, state.state(), coordinator, {}));
    return path;
  }

  // The name decides the format.
  std::string Convert(const std::string& src, absl::string_view name,
                      std::optional<Mesh> mesh = std::nullopt) {
    const std::string path = Path(name);
    ConvertOptions options;
    options.mesh = std::move(mesh);
    EXPECT_OK(ConvertCheckpoint(fs_, src, path, std::move(options)));
    return path;
  }

  Received Read(const tessera::v1::ReadTensorsRequest& request) {
    return ReadBy(*stub_, request);
  }

  // Checks that the chunks are consecutive and that their sums are right.
  static Received ReadBy(tessera::v1::CheckpointService::Stub& stub,
                         const tessera::v1::ReadTensorsRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub.ReadTensors(&context, request);
    Received received;
    tessera::v1::ReadTensorsResponse response;
    while (reader->Read(&response)) {
      if (response.has_header()) {
        ++received.num_headers;
        EXPECT_EQ(received.num_chunks, 0u);
        received.header.MergeFrom(response.header());
        continue;
      }
      AddChunk(request.resume_offset(), response.chunk(), received);
    }
    received.status = FromRpcStatus(reader->Finish(), "ReadTensors");
    return received;
  }

  static void AddChunk(uint64_t resumed_at,
                       const tessera::v1::ReadTensorsResponse::Chunk& chunk,
                       Received& received) {
    ++received.num_chunks;
    for (; received.part < chunk.part(); ++received.part) {
      received.part_begin +=
          received.header.parts(static_cast<int>(received.part)).num_bytes();
    }
    EXPECT_EQ(received.part, chunk.part());
    EXPECT_EQ(received.part_begin + chunk.offset(),
              resumed_at + received.bytes.size());
    EXPECT_LE(
        chunk.offset() + chunk.data().size(),
        received.header.parts(static_cast<int>(chunk.part())).num_bytes());
    EXPECT_EQ(chunk.crc32c(), ExtendCrc32c(0, AsBytes(chunk.data())));
    received.bytes += chunk.data();
  }

 private:
  const testing::TempDir dir_;
  HookedFileSystem fs_;
  const std::string root_;
  Access access_;
  Admission admission_;
  MemoryBudget budget_;
  Metrics metrics_;
  std::unique_ptr<CheckpointService> service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<tessera::v1::CheckpointService::Stub> stub_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_READING_CHECKPOINT_SERVER_H_
