// SPDX-License-Identifier: Apache-2.0
// Attacks the dcp-server process in all ways that attacks.h knows, at once,
// while well-behaved clients read streams at a steady pace and run jobs. The
// server must serve these, and return the memory that it used for the
// attackers. --seconds sets the duration; --descriptors how many files the
// server may open; --connections the attackers of each kind; --streams, --pace
// and --jobs the well-behaved clients; --max_memory the server's option;
// --memory_limit how much memory the process may have, in a control group if
// this process may make one; --min_throughput the fraction of the pace that
// must be met, and the fraction of the throughput that must be left afterwards.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tests/server/attacks.h"
#include "tests/server/server_process.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(
    std::string, attack, "",
    "instead of testing, attack in \"all\" ways or by \"idle\" connections");
ABSL_FLAG(std::string, address, "", "of the server to attack");
ABSL_FLAG(std::string, path, "", "of a large tensor, for attackers");
ABSL_FLAG(std::string, names_path, "", "of many names, for attackers");
ABSL_FLAG(double, seconds, 1, "of attacks");
ABSL_FLAG(int, descriptors, 256, "of the server");
ABSL_FLAG(int, connections, 1, "of each kind of attacker");
ABSL_FLAG(int, streams, 10, "of well-behaved clients");
ABSL_FLAG(double, pace, 0.1, "seconds between the messages of a stream");
ABSL_FLAG(int, jobs, 2, "of well-behaved clients");
ABSL_FLAG(uint64_t, max_memory, uint64_t{256} << 20, "of the server");
ABSL_FLAG(uint64_t, memory_limit, uint64_t{1} << 30, "of the process");
ABSL_FLAG(double, min_throughput, 0, "of before and of the pace, 0 to 1");

namespace dcp::server {
namespace {

using ::dcp::testing::TempDir;
namespace v1 = tessera::v1;

constexpr uint64_t kExtraMemory = uint64_t{256} << 20;
constexpr uint64_t kTensorBytes = uint64_t{16} << 20;
// The server holds the tensor of a paced stream until the client has the last
// messages. All of them fit into the memory that one client may have.
constexpr uint64_t kPacedBytes = uint64_t{320} << 10;
constexpr int kPacedMessageBytes = 8 << 10;
constexpr int kReadAheadBytes = 64 << 10;
constexpr int kManyNames = 20'000;

// The digests of "two" and "three", the attackers, and of "one", the
// well-behaved client. A client that may write names the directory last.
constexpr absl::string_view kAttackers =
    "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n"
    "c 8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f write=";
constexpr absl::string_view kWellBehaved =
    "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed write=";

// Makes a control group with the memory limit. Returns the directory, or "" if
// this process may not make one.
std::string MakeControlGroup(uint64_t limit_bytes) {
  const std::string path =
      absl::StrCat("/sys/fs/cgroup/memory/attack_test_", getpid());
  std::error_code error;
  if (!std::filesystem::create_directory(path, error)) return "";
  std::ofstream limit(absl::StrCat(path, "/memory.limit_in_bytes"));
  limit << limit_bytes << std::flush;
  return limit.good() ? path : "";
}

// A channel that reads ahead a few messages, so that the server holds a stream
// as long as the client reads it.
std::shared_ptr<grpc::Channel> NewPacedChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReadAheadBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Streams that take a message now and then, as a training job does.
class PacedStreams {
 public:
  PacedStreams(const std::string& address, const std::string& path) {
    for (int i = 0; i < absl::GetFlag(FLAGS_streams); ++i) {
      if (i % 100 == 0) channel_ = NewPacedChannel(address);
      threads_.emplace_back([this, channel = channel_, path] {
        while (!ended_.HasBeenNotified()) Read(channel, path);
      });
    }
  }

  // The fraction of the expected messages that arrived.
  double End(absl::Duration after) {
    ended_.Notify();
    for (std::thread& thread : threads_) thread.join();
    const double wanted = absl::ToDoubleSeconds(after) /
                          absl::GetFlag(FLAGS_pace) *
                          static_cast<double>(threads_.size());
    absl::MutexLock lock(&mutex_);
    if (num_failed_ > 0) {
      std::cout << num_failed_ << " streams failed, the last with: " << failure_
                << std::endl;
    }
    return static_cast<double>(num_messages_.load()) / wanted;
  }

 private:
  void Read(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& path) {
    v1::ReadTensorsRequest request = MakeReadRequest(path);
    request.set_max_chunk_bytes(kPacedMessageBytes);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    SendToken("one", context);
    const auto stub = v1::CheckpointService::NewStub(channel);
    const auto reader = stub->ReadTensors(&context, request);
    v1::ReadTensorsResponse response;
    while (!ended_.WaitForNotificationWithTimeout(
               absl::Seconds(absl::GetFlag(FLAGS_pace))) &&
           reader->Read(&response)) {
      ++num_messages_;
    }
    if (ended_.HasBeenNotified()) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (status.ok() || ended_.HasBeenNotified()) return;
    absl::MutexLock lock(&mutex_);
    ++num_failed_;
    failure_ = status.error_message();
  }

  std::shared_ptr<grpc::Channel> channel_;
  absl::Notification ended_;
  std::atomic<int64_t> num_messages_ = 0;
  absl::Mutex mutex_;
  int64_t num_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// Empty tensors with many names.
std::string ManyNames() {
  std::string header = "{";
  for (int i = 0; i < kManyNames; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"model.layers.", i,
                    ".mlp.weight\":{\"dtype\":\"U8\",\"shape\":[0],"
                    "\"data_offsets\":[0,0]}");
  }
  absl::StrAppend(&header, "}");
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) {
    file[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  }
  return file + header;
}

std::string SafetensorsImage(uint64_t num_bytes) {
  const std::string header =
      absl::StrCat("{\"t\":{\"dtype\":\"U8\",\"shape\":[", num_bytes,
                   "],\"data_offsets\":[0,", num_bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return absl::StrCat(file, header, std::string(num_bytes, 'x'));
}

class AttackTest : public ::testing::Test {
 protected:
  AttackTest() {
    path_ =
        dir_.WriteFile("data/m.safetensors", SafetensorsImage(kTensorBytes));
    paced_path_ =
        dir_.WriteFile("data/paced.safetensors", SafetensorsImage(kPacedBytes));
    names_path_ = dir_.WriteFile("data/names.safetensors", ManyNames());
    const std::string tokens = dir_.WriteFile(
        "tokens", absl::StrCat(kAttackers, dir_.Join("data"), "\n",
                               kWellBehaved, dir_.Join("data"), "\n"));
    const int descriptors = absl::GetFlag(FLAGS_descriptors);
    const uint64_t max_memory = absl::GetFlag(FLAGS_max_memory);
    group_ = MakeControlGroup(absl::GetFlag(FLAGS_memory_limit));
    process_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "/bin/bash", "-c", "echo $$ > \"$0\"; exec \"$@\"",
        group_.empty() ? "/dev/null" : group_ + "/cgroup.procs",
        "/usr/bin/prlimit",
        absl::StrCat("--nofile=", descriptors, ":", descriptors),
        "tests/testing/programs/dcp-server", "--listen=127.0.0.1:0",
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        absl::StrCat("--tokens-file=", tokens),
        absl::StrCat("--max-streams=", 2 * absl::GetFlag(FLAGS_streams) + 500),
        absl::StrCat("--max-memory=", max_memory),
        absl::StrCat("--job-memory=", max_memory / 4)});
    DCP_CHECK(process_->WaitUntilItSays(" tokens=yes"));
    address_ = process_->WordAfter("event=start address=");
  }

  ~AttackTest() override {
    process_ = nullptr;
    if (!group_.empty()) rmdir(group_.c_str());
  }

  // For a process that attacks. Attackers would be other machines, so the
  // server and the well-behaved clients take the processors first.
  std::vector<std::string> AttackArguments(absl::string_view attack) const {
    return {"/usr/bin/nice",
            "-n19",
            std::filesystem::read_symlink("/proc/self/exe"),
            absl::StrCat("--attack=", attack),
            absl::StrCat("--address=", address_),
            absl::StrCat("--path=", path_),
            absl::StrCat("--names_path=", names_path_),
            absl::StrCat("--connections=", absl::GetFlag(FLAGS_connections)),
            absl::StrCat("--descriptors=", absl::GetFlag(FLAGS_descriptors))};
  }

  // Returns the operations' names.
  std::vector<std::string> StartJobs(v1::JobService::Stub& stub) {
    std::vector<std::string> names;
    for (int i = 0; i < absl::GetFlag(FLAGS_jobs); ++i) {
      v1::ConvertRequest request;
      request.mutable_source()->set_path(path_);
      request.mutable_destination()->set_path(
          dir_.Join(absl::StrCat("data/out-", i)));
      request.set_format(v1::FORMAT_DCP);
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      SendToken("one", context);
      google::longrunning::Operation operation;
      const grpc::Status status = stub.Convert(&context, request, &operation);
      EXPECT_TRUE(status.ok()) << status.error_message();
      names.push_back(operation.name());
    }
    return names;
  }

  void ExpectSuccess(google::longrunning::Operations::Stub& stub,
                     const std::string& name) {
    google::longrunning::WaitOperationRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    SendToken("one", context);
    google::longrunning::Operation operation;
    const grpc::Status status =
        stub.WaitOperation(&context, request, &operation);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(operation.has_response()) << operation.error().message();
  }

  // Returns the bytes that were read.
  uint64_t ReadOnce(v1::CheckpointService::Stub& stub,
                    const v1::ReadTensorsRequest& request) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    SendToken("one", context);
    const auto reader = stub.ReadTensors(&context, request);
    v1::ReadTensorsResponse response;
    uint64_t num_bytes = 0;
    while (reader->Read(&response)) num_bytes += response.chunk().data().size();
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return num_bytes;
  }

  // Reads the tensor again and again for `time`, and returns the median of the
  // bytes per second. Fails if a read does.
  double Throughput(absl::Duration time) {
    const auto stub = v1::CheckpointService::NewStub(NewChannel(address_));
    const v1::ReadTensorsRequest request = MakeReadRequest(path_);
    // The first read also waits until the server takes the connection.
    ReadOnce(*stub, request);
    const absl::Time end = absl::Now() + time;
    std::vector<double> rates;
    while (absl::Now() < end && !HasFailure()) {
      const absl::Time begin = absl::Now();
      const double num_bytes = static_cast<double>(ReadOnce(*stub, request));
      rates.push_back(num_bytes / absl::ToDoubleSeconds(absl::Now() - begin));
    }
    std::sort(rates.begin(), rates.end());
    return rates.empty() ? 0 : rates[rates.size() / 2];
  }

  TempDir dir_;
  std::string path_;
  std::string paced_path_;
  std::string names_path_;
  std::string address_;
  std::string group_;
  std::unique_ptr<ServerProcess> process_;
};

TEST_F(AttackTest, ServerSurvivesAllAttacks) {
  const absl::Duration time = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  const double before = Throughput(time / 10);
  const uint64_t resident_before = process_->resident_bytes();
  const auto channel = NewChannel(address_);
  ASSERT_TRUE(channel->WaitForConnected(
      absl::ToChronoTime(absl::Now() + absl::Minutes(1))));
  const auto jobs = v1::JobService::NewStub(channel);
  const auto operations = google::longrunning::Operations::NewStub(channel);
  double paced = 0;
  std::vector<std::string> names;
  {
    PacedStreams streams(address_, paced_path_);
    const absl::Time begin = absl::Now();
    absl::Duration attacked;
    {
      const ServerProcess attackers(AttackArguments("all"));
      // Idle connections may leave none for those that the server cuts.
      EXPECT_TRUE(process_->WaitUntilItSays("event=connection_cut"));
      names = StartJobs(*jobs);
      const ServerProcess idle(AttackArguments("idle"));
      process_->LetRun(time);
      attacked = absl::Now() - begin;
    }
    paced = streams.End(attacked);
  }
  for (const std::string& name : names) ExpectSuccess(*operations, name);
  // The server ends the attackers' connections.
  process_->LetRun(time / 10);
  const double after = Throughput(time / 10);
  const uint64_t resident_after = process_->resident_bytes();
  std::cout << "MiB/s before " << before / (1 << 20) << ", after "
            << after / (1 << 20) << "; of the messages of streams " << paced
            << "; resident MiB before " << (resident_before >> 20) << ", after "
            << (resident_after >> 20) << ", at most "
            << (process_->peak_resident_bytes() >> 20) << "; KiB of log "
            << (process_->said().size() >> 10)
            << (group_.empty() ? "; no control group" : "") << std::endl;
  EXPECT_LT(resident_after, absl::GetFlag(FLAGS_max_memory) + kExtraMemory);
  EXPECT_LT(process_->peak_resident_bytes(), absl::GetFlag(FLAGS_memory_limit));
  EXPECT_GE(after, before * absl::GetFlag(FLAGS_min_throughput));
  EXPECT_GE(paced, absl::GetFlag(FLAGS_min_throughput));
  // A hundred lines at once and ten per second, for each of a few events.
  EXPECT_LT(process_->said().size(),
            (1 << 20) + absl::ToDoubleSeconds(time) * 50'000);
  process_->Signal(SIGTERM);
  EXPECT_TRUE(process_->WaitUntilItSays("event=stop clean=yes"));
}

// README.md names these figures.
TEST_F(AttackTest, ConnectionsAndCallsWithoutATokenTakeLittle) {
  constexpr uint64_t kConnectionBytes = 64 << 10;
  constexpr uint64_t kBytesOfACall = 32 << 10;
  const auto call = [](uint32_t stream, uint8_t flags) {
    return Frame(kHeadersFrame, kEndHeaders | flags, stream,
                 CallHeaders("/tessera.v1.CheckpointService/Inspect"));
  };
  std::vector<std::unique_ptr<RawConnection>> connections;
  const auto connect = [&](int number) {
    for (int i = 0; i < number; ++i) {
      connections.push_back(std::make_unique<RawConnection>(address_));
      ASSERT_TRUE(connections.back()->Send(Preface() + call(1, kEndStream)));
      ASSERT_TRUE(connections.back()->WaitForAnswer(1));
    }
  };
  connect(20);  // the first also take memory that the process needs only once
  const uint64_t before = process_->resident_bytes();
  connect(100);
  const uint64_t connected = process_->resident_bytes();
  EXPECT_LT(connected - before, 100 * kConnectionBytes);
  std::string calls;
  for (uint32_t i = 0; i < 500; ++i) calls += call(3 + 2 * i, 0);
  ASSERT_TRUE(connections.back()->Send(calls + call(2001, kEndStream)));
  ASSERT_TRUE(connections.back()->WaitForAnswer(2001));
  EXPECT_LT(process_->resident_bytes() - connected, 500 * kBytesOfACall);
}

}  // namespace

// Attacks until this process is killed.
void RunAttack() {
  const Attack attack(absl::GetFlag(FLAGS_address),
                      static_cast<size_t>(absl::GetFlag(FLAGS_descriptors)),
                      absl::GetFlag(FLAGS_path),
                      absl::GetFlag(FLAGS_names_path));
  if (absl::GetFlag(FLAGS_attack) == "idle") return attack.IdleConnections();
  std::vector<std::jthread> threads;
  for (int i = 0; i < absl::GetFlag(FLAGS_connections); ++i) {
    for (const auto method :
         {&Attack::UnknownMethods, &Attack::RapidReset, &Attack::EndlessHeaders,
          &Attack::ControlFrames, &Attack::CallsWithoutRequests,
          &Attack::UnfinishedRequests, &Attack::HealthWatches,
          &Attack::TextThatIsNotUtf8, &Attack::UnreadStreams,
          &Attack::CancelledInspects, &Attack::RequestsOfEmptyMessages,
          &Attack::RequestsOfManyParts, &Attack::PlansForManyRanks}) {
      threads.emplace_back([&attack, method] { (attack.*method)(); });
    }
  }
}

}  // namespace dcp::server

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  if (!absl::GetFlag(FLAGS_attack).empty()) dcp::server::RunAttack();
  return RUN_ALL_TESTS();
}
