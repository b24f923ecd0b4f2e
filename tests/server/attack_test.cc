// Attacks the dcp-server process in several ways at once. Some clients have no
// token and send HTTP/2 that no library would: calls of methods that do not
// exist, headers that never end, calls that are reset as soon as they have
// begun, floods of control frames, connections that send nothing, and more
// connections than the server has descriptors for. One client has a token, and
// begins streams that it does not read and cancels Inspects of a thousand
// patterns. The server must keep serving another client, and return the memory
// that it used for the attackers. --seconds sets the duration, --descriptors
// how many files the server may open, --min-throughput how much of its
// throughput a well-behaved client keeps afterwards.

#include <signal.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/server_process.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/temp_dir.h"

ABSL_FLAG(double, seconds, 1, "of attacks");
ABSL_FLAG(int, descriptors, 256, "of the server");
ABSL_FLAG(double, min_throughput, 0, "of before, 0 to 1");

namespace dcp::server {
namespace {

using ::dcp::testing::TempDir;
namespace v1 = tessera::v1;

constexpr uint64_t kMaxMemory = uint64_t{256} << 20;
constexpr uint64_t kBesideMemory = uint64_t{256} << 20;
// The machine's total memory.
constexpr uint64_t kMachineMemory = uint64_t{1} << 30;
constexpr uint64_t kTensorBytes = uint64_t{16} << 20;
constexpr int kFramesAtOnce = 100;
// The streams of a client that does not read them, all at once.
constexpr size_t kUnreadStreams = 100;
constexpr int kManyNames = 20'000;
constexpr int kManyPatterns = 1000;

// The digests of "one", the well-behaved client, and of "two", the attacker.
constexpr absl::string_view kTokens =
    "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n"
    "b 3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";

void SendToken(absl::string_view token, grpc::ClientContext& context) {
  context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

v1::ReadTensorsRequest ReadOf(const std::string& path) {
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  request.mutable_parts()->add_parts()->set_name("t");
  return request;
}

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

std::string SafetensorsOf(uint64_t num_bytes) {
  const std::string header =
      absl::StrCat("{\"t\":{\"dtype\":\"U8\",\"shape\":[", num_bytes,
                   "],\"data_offsets\":[0,", num_bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return absl::StrCat(file, header, std::string(num_bytes, 'x'));
}

// Streams of a client have odd numbers.
uint32_t StreamOf(int call) { return static_cast<uint32_t>(2 * call + 1); }

class Attack {
 public:
  // Returns the bytes to send for calls `begin` to `begin` + kFramesAtOnce.
  using Round = std::function<std::string(int begin)>;

  // `path` has a large tensor, `names_path` many names.
  Attack(std::string address, std::string path, std::string names_path)
      : address_(std::move(address)),
        path_(std::move(path)),
        names_path_(std::move(names_path)),
        channel_(NewChannel(address_)),
        stub_(v1::CheckpointService::NewStub(channel_)) {
    // Connects before the others take all connections.
    DCP_CHECK(channel_->WaitForConnected(
        absl::ToChronoTime(absl::Now() + absl::Minutes(1))));
  }

  // Lets the attacks continue for `time`, then ends them.
  void EndAfter(absl::Duration time) {
    ended_.WaitForNotificationWithTimeout(time);
    ended_.Notify();
  }
  bool GoesOn() const { return !ended_.HasBeenNotified(); }

  // Sends rounds, on a new connection whenever one ends.
  void Flood(const Round& round) const {
    while (GoesOn()) {
      RawConnection connection(address_);
      if (!connection.Send(Preface())) continue;
      int call = 0;
      while (GoesOn() && connection.Send(round(call)) && connection.Drain()) {
        call += kFramesAtOnce;
      }
    }
  }

  void UnknownMethods() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(
            &frames, Frame(kHeadersFrame, kEndHeaders | kEndStream, StreamOf(i),
                           CallHeaders(absl::StrCat("/tessera.v1.JobService/",
                                                    i, std::string(80, 'x')))));
      }
      return frames;
    });
  }

  void RapidReset() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(
            &frames,
            Frame(kHeadersFrame, kEndHeaders, StreamOf(i),
                  CallHeaders("/tessera.v1.CheckpointService/ReadTensors")),
            Frame(kResetFrame, 0, StreamOf(i),
                  absl::string_view("\0\0\0\x08", 4)));
      }
      return frames;
    });
  }

  void EndlessHeaders() const {
    const std::string more =
        Frame(kContinuationFrame, 0, 1,
              absl::StrCat(std::string("\x00\x7f\x81\x7f", 4),
                           std::string(16000, 'x')));
    Flood([&](int begin) {
      return begin == 0 ? Frame(kHeadersFrame, 0, 1, CallHeaders("/a.B/C"))
                        : more;
    });
  }

  void ControlFrames() const {
    Flood([](int) {
      std::string frames;
      for (int i = 0; i < kFramesAtOnce; ++i) {
        absl::StrAppend(&frames, Frame(kSettingsFrame, 0, 0, ""),
                        Frame(kPingFrame, 0, 0, "12345678"));
      }
      return frames;
    });
  }

  // Opens more connections than there are descriptors; some begin HTTP/2.
  void IdleConnections() const {
    std::vector<std::unique_ptr<RawConnection>> connections;
    const size_t num =
        static_cast<size_t>(absl::GetFlag(FLAGS_descriptors)) * 2;
    for (size_t i = 0; GoesOn() && i < num; ++i) {
      connections.push_back(std::make_unique<RawConnection>(address_));
      if (i % 2 == 0) connections.back()->Send(Preface());
    }
    ended_.WaitForNotification();
  }

  // Begins as many streams as the client may have, and more.
  void UnreadStreams() const {
    const v1::ReadTensorsRequest request = ReadOf(path_);
    while (GoesOn()) {
      std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
      std::vector<std::unique_ptr<grpc::ClientReader<v1::ReadTensorsResponse>>>
          readers;
      for (size_t i = 0; GoesOn() && i < kUnreadStreams; ++i) {
        contexts.push_back(std::make_unique<grpc::ClientContext>());
        SendToken("two", *contexts.back());
        readers.push_back(stub_->ReadTensors(contexts.back().get(), request));
      }
      ended_.WaitForNotificationWithTimeout(absl::Seconds(2));
      for (size_t i = 0; i < readers.size(); ++i) {
        contexts[i]->TryCancel();
        readers[i]->Finish();
      }
    }
  }

  void CancelledInspects() const {
    v1::InspectRequest request;
    request.mutable_source()->set_path(names_path_);
    for (int i = 0; i < kManyPatterns; ++i) {
      request.add_names(absl::StrCat("*a*e*l*.*", i % 10, "*.*m*p*", i, "*z"));
    }
    while (GoesOn()) {
      grpc::ClientContext context;
      SendToken("two", context);
      context.set_deadline(
          absl::ToChronoTime(absl::Now() + absl::Milliseconds(20)));
      v1::InspectResponse response;
      stub_->Inspect(&context, request, &response);
    }
  }

 private:
  const std::string address_;
  const std::string path_;
  const std::string names_path_;
  absl::Notification ended_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

class AttackTest : public ::testing::Test {
 protected:
  AttackTest() {
    path_ = dir_.WriteFile("data/m.safetensors", SafetensorsOf(kTensorBytes));
    names_path_ = dir_.WriteFile("data/names.safetensors", ManyNames());
    const std::string tokens = dir_.WriteFile("tokens", kTokens);
    const int descriptors = absl::GetFlag(FLAGS_descriptors);
    process_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "/usr/bin/prlimit",
        absl::StrCat("--nofile=", descriptors, ":", descriptors),
        "server/dcp-server", "--listen=127.0.0.1:0",
        absl::StrCat("--root=", dir_.Join("data")),
        absl::StrCat("--state-dir=", dir_.Join("state")),
        absl::StrCat("--tokens-file=", tokens),
        absl::StrCat("--max-memory=", kMaxMemory),
        absl::StrCat("--job-memory=", kMaxMemory / 4)});
    DCP_CHECK(process_->WaitUntilItSays(" tokens=yes"));
    address_ = process_->WordAfter("event=start address=");
  }

  // The bytes that were read.
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

  // Reads the tensor for `time` and returns the bytes per second; fails if a
  // read does.
  double Throughput(absl::Duration time) {
    const auto stub = v1::CheckpointService::NewStub(NewChannel(address_));
    const v1::ReadTensorsRequest request = ReadOf(path_);
    // The first read also waits until the server takes the connection.
    ReadOnce(*stub, request);
    const absl::Time begin = absl::Now();
    uint64_t num_bytes = 0;
    while (absl::Now() < begin + time && !HasFailure()) {
      num_bytes += ReadOnce(*stub, request);
    }
    return static_cast<double>(num_bytes) /
           absl::ToDoubleSeconds(absl::Now() - begin);
  }

  TempDir dir_;
  std::string path_;
  std::string names_path_;
  std::string address_;
  std::unique_ptr<ServerProcess> process_;
};

TEST_F(AttackTest, TheServerOutlivesThemAll) {
  const absl::Duration time = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  const double before = Throughput(time / 10);
  const uint64_t resident_before = process_->resident_bytes();
  {
    Attack attack(address_, path_, names_path_);
    std::vector<std::jthread> threads;
    const auto start = [&](void (Attack::*method)() const) {
      threads.emplace_back([&attack, method] { (attack.*method)(); });
    };
    start(&Attack::UnknownMethods);
    start(&Attack::RapidReset);
    start(&Attack::EndlessHeaders);
    start(&Attack::ControlFrames);
    start(&Attack::UnreadStreams);
    start(&Attack::CancelledInspects);
    // Idle connections may leave none for those that the server cuts.
    EXPECT_TRUE(process_->WaitUntilItSays("event=connection_cut"));
    start(&Attack::IdleConnections);
    attack.EndAfter(time);
  }
  const double after = Throughput(time / 10);
  const uint64_t resident_after = process_->resident_bytes();
  std::cout << "MiB/s before " << before / (1 << 20) << ", after "
            << after / (1 << 20) << "; resident MiB before "
            << (resident_before >> 20) << ", after " << (resident_after >> 20)
            << ", at most " << (process_->peak_resident_bytes() >> 20)
            << "; KiB of log " << (process_->said().size() >> 10) << std::endl;
  EXPECT_LT(resident_after, kMaxMemory + kBesideMemory);
  EXPECT_LT(process_->peak_resident_bytes(), kMachineMemory);
  EXPECT_GE(after, before * absl::GetFlag(FLAGS_min_throughput));
  // A hundred at once and ten per second, for each of a few events.
  EXPECT_LT(process_->said().size(),
            (1 << 20) + absl::ToDoubleSeconds(time) * 50'000);
  process_->Signal(SIGTERM);
  EXPECT_TRUE(process_->WaitUntilItSays("event=stop clean=yes"));
}

}  // namespace
}  // namespace dcp::server

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
