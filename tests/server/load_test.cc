// Runs the dcp-server process under more load than it can serve at once:
// hundreds of jobs and streams, and clients that do not read, that vanish, or
// that are hostile. Each client gets its share, leaves nothing behind, and the
// server keeps serving the others within its memory. --jobs, --streams and
// --connections set the numbers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/protobuf/util/time_util.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/jobs/job_server.h"
#include "tests/server/server_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(int, jobs, 40, "at once, of two clients");
ABSL_FLAG(int, streams, 200, "at once");
ABSL_FLAG(int, connections, 200, "that say nothing");
ABSL_FLAG(std::string, vanish, "",
          "address; be a client that reads the start of streams");
ABSL_FLAG(std::string, path, "", "of that client: a safetensors file");

namespace dcp::server {
namespace {

using ::dcp::testing::TempDir;
using ::testing::AnyOf;
using ::testing::Eq;
namespace v1 = tessera::v1;

// The memory that README.md grants the process in addition to --max-memory.
constexpr uint64_t kBesideMemory = uint64_t{1} << 30;
constexpr uint64_t kMaxMemory = uint64_t{512} << 20;
// The server's readers have their own memory, from the start to the end.
constexpr uint64_t kNumReaders = 2;
constexpr double kReaderMemory = kNumReaders * (32 << 20);
// Bounds what the server may send to a client that does not read.
constexpr int kReadAheadBytes = 64 << 10;
constexpr uint32_t kChunkBytes = 16 << 10;
// Calls on one connection.
constexpr size_t kStreamsPerChannel = 100;
// The time after which a metric is assumed to keep its value.
constexpr absl::Duration kPatience = absl::Minutes(1);

// The digests of "one" and "two".
constexpr absl::string_view kTokens =
    "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed "
    "write=$0\n"
    "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3 "
    "write=$0\n";

uint8_t ByteAt(uint64_t i) { return static_cast<uint8_t>(i * 7 + (i >> 12)); }

// A file with one tensor "t" of so many bytes.
std::string SafetensorsOf(uint64_t num_bytes) {
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

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReadAheadBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

v1::ReadTensorsRequest ReadOf(const std::string& path) {
  v1::ReadTensorsRequest request;
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

// A call of ReadTensors that stops after its first message until GoOn is
// called, and checks all bytes.
class StreamCall final
    : public grpc::ClientReadReactor<v1::ReadTensorsResponse> {
 public:
  StreamCall(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& path, const std::string& token,
             Progress& progress)
      : progress_(progress),
        stub_(v1::CheckpointService::NewStub(channel)),
        request_(ReadOf(path)) {
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
  void Check(const v1::ReadTensorsResponse::Chunk& chunk) {
    is_right_ &= chunk.offset() == num_bytes_;
    for (const char c : chunk.data()) {
      is_right_ &= static_cast<uint8_t>(c) == ByteAt(num_bytes_++);
    }
  }

  Progress& progress_;
  const std::unique_ptr<v1::CheckpointService::Stub> stub_;
  const v1::ReadTensorsRequest request_;
  grpc::ClientContext context_;
  v1::ReadTensorsResponse response_;
  grpc::Status status_;
  uint64_t num_bytes_ = 0;
  bool begun_ = false;
  bool is_right_ = true;
};

// A client process that reads the start of streams and then nothing, until it
// is killed.
int Vanish() {
  Progress progress;
  const auto channel = NewChannel(absl::GetFlag(FLAGS_vanish));
  std::vector<std::unique_ptr<StreamCall>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<StreamCall>(
        channel, absl::GetFlag(FLAGS_path), "one", progress));
  }
  progress.WaitFor(progress.num_begun, calls.size());
  std::cout << "event=reads all" << std::endl;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  _exit(0);
}

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

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() : one_(dir_.path()), two_(dir_.path()) {
    MakeCheckpoint(one_.data("source"), 2, 1 << 16);
    dir_.WriteFile("data/small.safetensors", SafetensorsOf(kSmallBytes));
    dir_.WriteFile("data/large.safetensors", SafetensorsOf(kLargeBytes));
    dir_.WriteFile("secret/key.safetensors", SafetensorsOf(1));
    std::string tokens(kTokens);
    for (size_t at; (at = tokens.find("$0")) != std::string::npos;) {
      tokens.replace(at, 2, one_.data(""));
    }
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "server/dcp-server", absl::StrCat("--root=", one_.data("")),
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

  ~LoadTest() override {
    EXPECT_LE(server_->peak_resident_bytes(), kMaxMemory + kBesideMemory);
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

  const TempDir dir_;
  JobClient one_;
  JobClient two_;
  std::unique_ptr<ServerProcess> server_;
  std::string address_;
  std::string metrics_address_;
};

// Checks that the two clients' jobs were started alternately once both clients
// had submitted all of theirs.
void ExpectTurns(const std::vector<std::pair<JobMetadata, int>>& jobs) {
  using google::protobuf::util::TimeUtil;
  int64_t all_there = 0;
  std::map<std::pair<int64_t, size_t>, int> starts;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobMetadata& job = jobs[i].first;
    all_there = std::max(all_there,
                         TimeUtil::TimestampToNanoseconds(job.create_time()));
    starts[{TimeUtil::TimestampToNanoseconds(job.start_time()), i}] =
        jobs[i].second;
  }
  int left[2] = {0, 0};
  for (const auto& [start, client] : starts) {
    if (start.first > all_there) ++left[client];
  }
  int difference = 0;
  for (const auto& [start, client] : starts) {
    if (start.first <= all_there || left[0] == 0 || left[1] == 0) continue;
    --left[client];
    difference += client == 0 ? 1 : -1;
    // Two jobs run at a time, and may have begun in either order.
    EXPECT_LE(std::abs(difference), 3);
  }
}

TEST_F(LoadTest, JobsAndStreamsStayWithinTheCaps) {
  const int num_jobs = absl::GetFlag(FLAGS_jobs);
  const auto num_streams = static_cast<size_t>(absl::GetFlag(FLAGS_streams));
  std::vector<std::string> names[2];
  JobClient* const clients[2] = {&one_, &two_};
  // One client submits all of its jobs before the other.
  for (int client = 0; client < 2; ++client) {
    for (int i = 0; i < num_jobs / 2; ++i) {
      auto request =
          clients[client]->Request(absl::StrCat("out-", client, "-", i));
      const auto operation = clients[client]->Convert(request);
      ASSERT_OK(operation);
      names[client].push_back(operation->name());
    }
  }
  Progress progress;
  const auto calls =
      OpenStreams(num_streams, one_.data("small.safetensors"), progress);
  progress.WaitFor(progress.num_begun, num_streams);
  EXPECT_EQ(Metric("tessera_streams"), static_cast<double>(num_streams));
  EXPECT_LE(Metric("tessera_memory_used_bytes"),
            static_cast<double>(kMaxMemory));
  {
    Progress one_more;
    StreamCall call(NewChannel(address_), one_.data("small.safetensors"), "one",
                    one_more);
    one_more.WaitFor(one_more.num_begun, 1);
    call.GoOn();
    one_more.WaitFor(one_more.num_ended, 1);
    EXPECT_EQ(call.status().error_code(), grpc::RESOURCE_EXHAUSTED);
  }
  for (const auto& call : calls) call->GoOn();
  progress.WaitFor(progress.num_ended, num_streams);
  for (const auto& call : calls) {
    ASSERT_TRUE(call->status().ok()) << call->status().error_message();
    ASSERT_EQ(call->num_bytes(), kSmallBytes);
    ASSERT_TRUE(call->is_right());
  }
  std::vector<std::pair<JobMetadata, int>> jobs;
  for (int client = 0; client < 2; ++client) {
    for (const std::string& name : names[client]) {
      const auto ended = clients[client]->Wait(name);
      ASSERT_OK(ended);
      EXPECT_OK(ErrorOf(*ended));
      jobs.emplace_back(MetadataOf(*ended), client);
    }
  }
  ExpectTurns(jobs);
  EXPECT_OK(CompareCheckpoints(one_.data("source"), one_.data("out-0-0")));
  ExpectNothingIsHeld();
  std::cout << num_jobs << " jobs and " << num_streams << " streams at once; "
            << "at most " << (server_->peak_resident_bytes() >> 20)
            << " MiB resident\n";
}

TEST_F(LoadTest, SlowClientsHoldUpNobody) {
  // Together they require more than half of the memory.
  constexpr size_t kNumSlow = 24;
  Progress slow;
  const auto calls =
      OpenStreams(kNumSlow, one_.data("large.safetensors"), slow);
  slow.WaitFor(slow.num_begun, kNumSlow);
  const uint64_t before = server_->peak_resident_bytes();
  for (int i = 0; i < 3; ++i) {
    Progress fast;
    const auto fast_calls =
        OpenStreams(2, one_.data("large.safetensors"), fast);
    fast.WaitFor(fast.num_begun, 2);
    for (const auto& call : fast_calls) call->GoOn();
    fast.WaitFor(fast.num_ended, 2);
    for (const auto& call : fast_calls) {
      EXPECT_TRUE(call->status().ok()) << call->status().error_message();
      EXPECT_EQ(call->num_bytes(), kLargeBytes);
      EXPECT_TRUE(call->is_right());
    }
  }
  const auto job = one_.Convert(one_.Request("out"));
  ASSERT_OK(job);
  const auto ended = one_.Wait(job->name());
  ASSERT_OK(ended);
  EXPECT_OK(ErrorOf(*ended));
  EXPECT_EQ(Metric("tessera_streams"), kNumSlow);
  EXPECT_LE(Metric("tessera_memory_used_bytes"),
            static_cast<double>(kMaxMemory));
  std::cout << kNumSlow << " slow clients: " << (before >> 20)
            << " MiB resident; with others at most "
            << (server_->peak_resident_bytes() >> 20) << " MiB\n";
  // The slow clients that keep reading get everything in the end.
  for (size_t i = 0; i < kNumSlow; ++i) {
    if (i % 2 == 0) {
      calls[i]->GoOn();
    } else {
      calls[i]->Leave();
    }
  }
  slow.WaitFor(slow.num_ended, kNumSlow);
  for (size_t i = 0; i < kNumSlow; i += 2) {
    EXPECT_TRUE(calls[i]->status().ok()) << calls[i]->status().error_message();
    EXPECT_EQ(calls[i]->num_bytes(), kLargeBytes);
    EXPECT_TRUE(calls[i]->is_right());
  }
  ExpectNothingIsHeld();
}

TEST_F(LoadTest, ClientsThatAreKilledLeaveNothing) {
  for (int i = 0; i < 2; ++i) {
    ServerProcess client(
        {"/proc/self/exe", absl::StrCat("--vanish=", address_),
         absl::StrCat("--path=", one_.data("large.safetensors"))});
    ASSERT_TRUE(client.WaitUntilItSays("event=reads")) << client.said();
    EXPECT_EQ(Metric("tessera_streams"), 8);
    EXPECT_GT(Metric("tessera_memory_used_bytes"), kReaderMemory);
    EXPECT_TRUE(client.Kill());
    ExpectNothingIsHeld();
  }
  ExpectServes();
}

constexpr const char* kCheckpointMethods[] = {
    "Inspect", "GetMetadata", "ReadTensors", "ReadObjects", "Verify", "Diff"};
constexpr const char* kJobMethods[] = {"Convert", "Reshard", "Consolidate",
                                       "Verify", "WatchJob"};
constexpr const char* kOperationsMethods[] = {
    "ListOperations", "GetOperation", "DeleteOperation", "CancelOperation",
    "WaitOperation"};

std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* name : kCheckpointMethods) {
    methods.push_back(absl::StrCat("/tessera.v1.CheckpointService/", name));
  }
  for (const char* name : kJobMethods) {
    methods.push_back(absl::StrCat("/tessera.v1.JobService/", name));
  }
  for (const char* name : kOperationsMethods) {
    methods.push_back(absl::StrCat("/google.longrunning.Operations/", name));
  }
  return methods;
}

// The status of a call with these bytes as its only message.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, absl::string_view bytes,
                     const std::string& token) {
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  if (!token.empty()) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto next = [&] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  next();
  const grpc::Slice slice(bytes.data(), bytes.size());
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
  while (next()) {
  }
  return status;
}

TEST_F(LoadTest, HostileMessagesAreRefusedByEveryMethod) {
  const std::string before = Files();
  const auto channel = NewChannel(address_);
  const std::vector<std::string> methods = AllMethods();
  for (const std::string& method : methods) {
    SCOPED_TRACE(method);
    // No tag, a length beyond the end, text that is not UTF-8, a group without
    // an end.
    for (const absl::string_view bytes :
         {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x0a\x7f\x01",
          "\x0a\x04\x0a\x02\xff\xfe", "\x0b\x0b\x0b\x0b"}) {
      const grpc::StatusCode code =
          CallRaw(channel, method, bytes, "one").error_code();
      EXPECT_THAT(code, AnyOf(Eq(grpc::INTERNAL), Eq(grpc::INVALID_ARGUMENT),
                              Eq(grpc::NOT_FOUND), Eq(grpc::UNIMPLEMENTED)))
          << absl::CHexEscape(bytes);
    }
    // An empty message is valid, but lacks required fields in most methods.
    const grpc::StatusCode empty =
        CallRaw(channel, method, "", "one").error_code();
    EXPECT_THAT(empty, AnyOf(Eq(grpc::INVALID_ARGUMENT), Eq(grpc::NOT_FOUND),
                             Eq(grpc::OK)));
    EXPECT_EQ(empty == grpc::OK, absl::EndsWith(method, "ListOperations"));
    EXPECT_EQ(CallRaw(channel, method, std::string(5 << 20, '\x0a'), "one")
                  .error_code(),
              grpc::RESOURCE_EXHAUSTED);
    for (const char* token : {"", "three", "one two"}) {
      EXPECT_EQ(CallRaw(channel, method, "", token).error_code(),
                grpc::UNAUTHENTICATED)
          << token;
    }
  }
  EXPECT_EQ(
      CallRaw(channel, "/tessera.v1.JobService/None", "", "one").error_code(),
      grpc::UNIMPLEMENTED);
  EXPECT_EQ(Files(), before);
  ExpectNothingIsHeld();
  ExpectServes();
}

// The same field in each request: a message whose first field is the path, as
// Source and Destination are.
std::string SourceBytes(const std::string& path) {
  v1::InspectRequest request;
  request.mutable_source()->set_path(path);
  return request.SerializeAsString();
}

TEST_F(LoadTest, PathsThatEscapeAreRefusedByEveryMethod) {
  const std::string data = one_.data("");
  ASSERT_EQ(symlink(dir_.Join("secret").c_str(), (data + "/out").c_str()), 0);
  ASSERT_EQ(symlink(dir_.Join("secret/key.safetensors").c_str(),
                    (data + "/key.safetensors").c_str()),
            0);
  const std::string before = ListFiles(dir_.Join("secret")) + Files();
  const auto channel = NewChannel(address_);
  const std::pair<std::string, grpc::StatusCode> escapes[] = {
      {"", grpc::INVALID_ARGUMENT},
      {"data", grpc::INVALID_ARGUMENT},
      {data + "/../secret/key.safetensors", grpc::INVALID_ARGUMENT},
      {data + "/./source", grpc::INVALID_ARGUMENT},
      {data + std::string("/source\0/x", 10), grpc::INVALID_ARGUMENT},
      {data + "/" + std::string(100'000, 'x'), grpc::INVALID_ARGUMENT},
      {data + "/" + std::string(1000, 'x'), grpc::INVALID_ARGUMENT},
      {dir_.Join("secret/key.safetensors"), grpc::PERMISSION_DENIED},
      {"/", grpc::PERMISSION_DENIED},
      {"/proc/self/environ", grpc::PERMISSION_DENIED},
      {data + "/out/key.safetensors", grpc::PERMISSION_DENIED},
      {data + "/key.safetensors", grpc::PERMISSION_DENIED},
  };
  for (const auto& [path, code] : escapes) {
    SCOPED_TRACE(path.substr(0, 200));
    for (const char* name : kCheckpointMethods) {
      std::string bytes = SourceBytes(path);
      if (std::string(name) == "ReadTensors") {
        bytes = ReadOf(path).SerializeAsString();
      }
      EXPECT_EQ(
          CallRaw(channel, absl::StrCat("/tessera.v1.CheckpointService/", name),
                  bytes, "one")
              .error_code(),
          code)
          << name;
    }
    for (const bool dry : {false, true}) {
      v1::ConvertRequest request = one_.Request("new");
      request.mutable_options()->set_validate_only(dry);
      request.mutable_source()->set_path(path);
      const std::string method = "/tessera.v1.JobService/Convert";
      EXPECT_EQ(CallRaw(channel, method, request.SerializeAsString(), "one")
                    .error_code(),
                code);
      request = one_.Request("new");
      request.mutable_options()->set_validate_only(dry);
      request.mutable_destination()->set_path(path);
      request.mutable_destination()->set_overwrite(true);
      EXPECT_EQ(CallRaw(channel, method, request.SerializeAsString(), "one")
                    .error_code(),
                code);
    }
  }
  EXPECT_EQ(ListFiles(dir_.Join("secret")) + Files(), before);
  EXPECT_EQ(one_.List()->operations_size(), 0);
  ExpectServes();
}

TEST_F(LoadTest, ConnectionsThatSayNothingOrNonsenseAreEnded) {
  const uint64_t before = server_->num_descriptors();
  for (const absl::string_view nonsense :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}) {
    Connection connection(address_);
    ASSERT_TRUE(connection.connected());
    connection.Send(nonsense);
    // The server hangs up after it has sent HTTP/2's settings.
    EXPECT_LT(connection.ReadAll().size(), 1000u);
  }
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < absl::GetFlag(FLAGS_connections); ++i) {
    silent.push_back(std::make_unique<Connection>(address_));
    ASSERT_TRUE(silent.back()->connected()) << i;
  }
  ExpectServes();
  // Each is closed when its time for the handshake is over.
  for (const auto& connection : silent) connection->ReadAll();
  silent.clear();
  ExpectServes();
  std::cout << absl::GetFlag(FLAGS_connections) << " silent connections; "
            << server_->num_descriptors() << " descriptors after, " << before
            << " before\n";
  EXPECT_LE(server_->num_descriptors(), before + 20);
}

void RaiseFileLimit() {
  rlimit limit;
  DCP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  DCP_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

}  // namespace
}  // namespace dcp::server

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  dcp::server::RaiseFileLimit();
  if (!absl::GetFlag(FLAGS_vanish).empty()) return dcp::server::Vanish();
  return RUN_ALL_TESTS();
}
