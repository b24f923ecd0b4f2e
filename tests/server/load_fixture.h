// SPDX-License-Identifier: Apache-2.0
// LoadFixture: the dcp-server process with little memory, two clients, and
// calls that stream. For the tests in load_test.
#ifndef TESTS_SERVER_LOAD_FIXTURE_H_
#define TESTS_SERVER_LOAD_FIXTURE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/jobs/job_server.h"
#include "tests/server/server_process.h"
#include "tests/testing/temp_dir.h"

ABSL_DECLARE_FLAG(int, connections);
ABSL_DECLARE_FLAG(int, streams);

namespace dcp::server {

// The memory that README.md grants the process in addition to --max-memory.
inline constexpr uint64_t kExtraMemory = uint64_t{1} << 30;
inline constexpr uint64_t kMaxMemory = uint64_t{512} << 20;
// The server's readers have separate memory, from the start to the end.
inline constexpr uint64_t kNumReaders = 2;
inline constexpr double kReaderMemory = kNumReaders * (32 << 20);
// Limits how much the server may send to a client that does not read.
inline constexpr int kReadAheadBytes = 64 << 10;
inline constexpr uint32_t kChunkBytes = 16 << 10;
// Calls on one connection.
inline constexpr size_t kStreamsPerChannel = 100;
// The time after which a metric is assumed to keep its value.
inline constexpr absl::Duration kPatience = absl::Minutes(1);

// The digests of "one" and "two".
inline constexpr absl::string_view kTokens =
    "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
    "write=$0\n"
    "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
    "write=$0\n";

inline uint8_t ByteAt(uint64_t i) {
  return static_cast<uint8_t>(i * 7 + (i >> 12));
}

// A file with one tensor "t" of `num_bytes` bytes.
inline std::string SafetensorsImage(uint64_t num_bytes) {
  const std::string header =
      absl::StrCat("{\"t\":{\"dtype\":\"U8\",\"shape\":[", num_bytes,
                   "],\"data_offsets\":[0,", num_bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  absl::StrAppend(&file, header);
  for (uint64_t i = 0; i < num_bytes; ++i) {
    file.push_back(static_cast<char>(ByteAt(i)));
  }
  return file;
}

inline std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReadAheadBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

inline tessera::v1::ReadTensorsRequest MakeReadRequest(
    const std::string& path) {
  tessera::v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  request.mutable_parts()->add_parts()->set_name("t");
  request.set_max_chunk_bytes(kChunkBytes);
  return request;
}

// Counts the streams that have begun and ended.
class Progress {
 public:
  void Add(uint64_t& counter) {
    absl::MutexLock lock(&mutex_);
    ++counter;
    changed_.SignalAll();
  }
  void WaitFor(const uint64_t& counter, uint64_t value) {
    absl::MutexLock lock(&mutex_);
    while (counter < value) changed_.Wait(&mutex_);
  }

  uint64_t num_begun = 0;
  uint64_t num_ended = 0;

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
};

// A call of ReadTensors that stops after the first message until GoOn is
// called, and checks all bytes.
class StreamCall final
    : public grpc::ClientReadReactor<tessera::v1::ReadTensorsResponse> {
 public:
  StreamCall(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& path, const std::string& token,
             Progress& progress)
      : progress_(progress),
        stub_(tessera::v1::CheckpointService::NewStub(channel)),
        request_(MakeReadRequest(path)) {
    context_.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    stub_->async()->ReadTensors(&context_, &request_, this);
    AddHold();
    StartRead(&response_);
    StartCall();
  }

  void GoOn() {
    StartRead(&response_);
    RemoveHold();
  }
  void Leave() {
    context_.TryCancel();
    RemoveHold();
  }

  // Valid once the call has ended.
  const grpc::Status& status() const { return status_; }
  uint64_t num_bytes() const { return num_bytes_; }
  bool is_right() const { return is_right_; }

 private:
  void OnReadDone(bool ok) override {
    const bool first = !std::exchange(begun_, true);
    if (ok && response_.has_chunk()) Check(response_.chunk());
    if (ok && !first) StartRead(&response_);
    if (first) progress_.Add(progress_.num_begun);
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    progress_.Add(progress_.num_ended);
  }
  void Check(const tessera::v1::ReadTensorsResponse::Chunk& chunk) {
    is_right_ &= chunk.offset() == num_bytes_;
    for (const char c : chunk.data()) {
      is_right_ &= static_cast<uint8_t>(c) == ByteAt(num_bytes_++);
    }
  }

  Progress& progress_;
  const std::unique_ptr<tessera::v1::CheckpointService::Stub> stub_;
  const tessera::v1::ReadTensorsRequest request_;
  grpc::ClientContext context_;
  tessera::v1::ReadTensorsResponse response_;
  grpc::Status status_;
  uint64_t num_bytes_ = 0;
  bool begun_ = false;
  bool is_right_ = true;
};

// A TCP connection to "127.0.0.1:PORT".
class Connection {
 public:
  explicit Connection(const std::string& address) {
    int port = 0;
    DCP_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    DCP_CHECK(fd_ >= 0);
    connected_ =
        connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server has hung up
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Everything that arrives until the other side hangs up.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    ssize_t length;
    while ((length = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
      all.append(bytes, static_cast<size_t>(length));
    }
    return all;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

class LoadFixture : public ::testing::Test {
 protected:
  LoadFixture() : one_(dir_.path()), two_(dir_.path()) {
    MakeCheckpoint(one_.data("source"), 2, 1 << 16);
    dir_.WriteFile("data/small.safetensors", SafetensorsImage(kSmallBytes));
    // Made once for all tests.
    static const std::string& large =
        *new std::string(SafetensorsImage(kLargeBytes));
    dir_.WriteFile("data/large.safetensors", large);
    dir_.WriteFile("secret/key.safetensors", SafetensorsImage(1));
    std::string tokens(kTokens);
    for (size_t at; (at = tokens.find("$0")) != std::string::npos;) {
      tokens.replace(at, 2, one_.data(""));
    }
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "tests/testing/programs/dcp-server",
        absl::StrCat("--root=", one_.data("")),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        absl::StrCat("--tokens-file=", dir_.WriteFile("tokens", tokens)),
        "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
        absl::StrCat("--max-memory=", kMaxMemory),
        absl::StrCat("--num-readers=", kNumReaders),
        absl::StrCat("--max-streams=", absl::GetFlag(FLAGS_streams)),
        "--job-memory=16MiB"});
    DCP_CHECK(server_->WaitUntilItSays(" tokens=yes\n"), server_->said());
    address_ = server_->WordAfter("event=start address=");
    metrics_address_ = server_->WordAfter("event=metrics address=");
    one_.set_token("one");
    one_.Connect(address_);
    two_.set_token("two");
    two_.Connect(address_);
  }

  ~LoadFixture() override {
    EXPECT_LE(server_->peak_resident_bytes(), kMaxMemory + kExtraMemory);
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0) << server_->said();
  }

  std::string Files() { return ListFiles(one_.data("")); }

  // The metric's present value; 0 if there is no such metric.
  double Metric(absl::string_view name) {
    Connection connection(metrics_address_);
    connection.Send(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const std::string text = connection.ReadAll();
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!absl::StartsWith(line, absl::StrCat(name, " "))) continue;
      double value = 0;
      DCP_CHECK(absl::SimpleAtod(
          absl::StripAsciiWhitespace(line.substr(name.size())), &value));
      return value;
    }
    return 0;
  }

  // Each iteration makes a call, so this is not a busy wait.
  void ExpectMetricBecomes(absl::string_view name, double value) {
    const absl::Time end = absl::Now() + kPatience;
    while (Metric(name) != value && absl::Now() < end) {
    }
    EXPECT_EQ(Metric(name), value) << name;
  }

  void ExpectNothingIsHeld() {
    ExpectMetricBecomes("tessera_streams", 0);
    ExpectMetricBecomes("tessera_memory_used_bytes", kReaderMemory);
    EXPECT_EQ(Metric("tessera_memory_waiting"), 0);
  }

  // A whole job and a whole stream.
  void ExpectServes() {
    Progress progress;
    StreamCall call(NewChannel(address_), one_.data("small.safetensors"), "one",
                    progress);
    progress.WaitFor(progress.num_begun, 1);
    call.GoOn();
    progress.WaitFor(progress.num_ended, 1);
    EXPECT_TRUE(call.status().ok()) << call.status().error_message();
    EXPECT_EQ(call.num_bytes(), kSmallBytes);
    EXPECT_TRUE(call.is_right());
  }

  std::vector<std::unique_ptr<StreamCall>> OpenStreams(size_t number,
                                                       const std::string& path,
                                                       Progress& progress) {
    std::vector<std::unique_ptr<StreamCall>> calls;
    std::shared_ptr<grpc::Channel> channel;
    for (size_t i = 0; i < number; ++i) {
      if (i % kStreamsPerChannel == 0) channel = NewChannel(address_);
      calls.push_back(std::make_unique<StreamCall>(
          channel, path, i % 2 == 0 ? "one" : "two", progress));
    }
    return calls;
  }

  static constexpr uint64_t kSmallBytes = uint64_t{256} << 10;
  static constexpr uint64_t kLargeBytes = uint64_t{48} << 20;

  const testing::TempDir dir_;
  JobClient one_;
  JobClient two_;
  std::unique_ptr<ServerProcess> server_;
  std::string address_;
  std::string metrics_address_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_LOAD_FIXTURE_H_
