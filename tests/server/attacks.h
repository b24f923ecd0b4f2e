// SPDX-License-Identifier: Apache-2.0
// Attacks on a server, each by one client, until they are ended. For tests.
#ifndef TESTS_SERVER_ATTACKS_H_
#define TESTS_SERVER_ATTACKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/check.h"
#include "grpcpp/create_channel.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tests/server/transport/raw_connection.h"

namespace dcp::server {

inline constexpr int kFramesAtOnce = 100;
// The streams that a client begins all at once and does not read.
inline constexpr size_t kUnreadStreams = 100;
inline constexpr int kManyPatterns = 1000;

inline void SendToken(absl::string_view token, grpc::ClientContext& context) {
  context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
}

inline std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

inline tessera::v1::ReadTensorsRequest MakeReadRequest(
    const std::string& path) {
  tessera::v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  request.mutable_parts()->add_parts()->set_name("t");
  return request;
}

// A client's streams have odd numbers.
inline uint32_t StreamNumber(int call) {
  return static_cast<uint32_t>(2 * call + 1);
}

// All methods but the constructor run until the process is killed.
class Attack {
 public:
  // Returns the bytes to send for calls `begin` to `begin` + kFramesAtOnce.
  using Round = std::function<std::string(int begin)>;

  // `path` has a large tensor, `names_path` many names; the server may open
  // `num_descriptors` files.
  Attack(std::string address, size_t num_descriptors, std::string path,
         std::string names_path)
      : address_(std::move(address)),
        num_descriptors_(num_descriptors),
        path_(std::move(path)),
        names_path_(std::move(names_path)),
        channel_(NewChannel(address_)),
        stub_(tessera::v1::CheckpointService::NewStub(channel_)) {
    // Connects before the others take all connections.
    DCP_CHECK(channel_->WaitForConnected(
        absl::ToChronoTime(absl::Now() + absl::Minutes(1))));
  }

  // Sends rounds, on a new connection whenever one ends.
  void Flood(const Round& round) const {
    while (true) {
      RawConnection connection(address_);
      if (!connection.Send(Preface())) continue;
      int call = 0;
      while (connection.Send(round(call)) && connection.Drain()) {
        call += kFramesAtOnce;
      }
    }
  }

  void UnknownMethods() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(
            &frames,
            Frame(kHeadersFrame, kEndHeaders | kEndStream, StreamNumber(i),
                  CallHeaders(absl::StrCat("/tessera.v1.JobService/", i,
                                           std::string(80, 'x')))));
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
            Frame(kHeadersFrame, kEndHeaders, StreamNumber(i),
                  CallHeaders("/tessera.v1.CheckpointService/ReadTensors")),
            Frame(kResetFrame, 0, StreamNumber(i),
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

  // Calls that never have a request, by a client that never acknowledges the
  // server's settings.
  void CallsWithoutRequests() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(
            &frames,
            Frame(kHeadersFrame, kEndHeaders, StreamNumber(i),
                  CallHeaders("/tessera.v1.CheckpointService/Inspect")));
      }
      return frames;
    });
  }

  // Requests of 4 MiB, which are sent only in part.
  void UnfinishedRequests() const {
    Flood([](int begin) {
      return absl::StrCat(
          Frame(kHeadersFrame, kEndHeaders, StreamNumber(begin),
                CallHeaders("/tessera.v1.JobService/Convert")),
          Frame(kDataFrame, 0, StreamNumber(begin),
                absl::StrCat(absl::string_view("\0\0\x40\0\0", 5),
                             std::string(500, 'x'))));
    });
  }

  // Calls that need no token and stay open.
  void HealthWatches() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(&frames,
                        Frame(kHeadersFrame, kEndHeaders, StreamNumber(i),
                              CallHeaders("/grpc.health.v1.Health/Watch")),
                        Frame(kDataFrame, kEndStream, StreamNumber(i),
                              absl::string_view("\0\0\0\0\0", 5)));
      }
      return frames;
    });
  }

  // Requests that make protobuf complain; a client needs no token for them.
  void TextThatIsNotUtf8() const {
    Flood([](int begin) {
      std::string frames;
      for (int i = begin; i < begin + kFramesAtOnce; ++i) {
        absl::StrAppend(
            &frames,
            Frame(kHeadersFrame, kEndHeaders, StreamNumber(i),
                  CallHeaders("/grpc.reflection.v1.ServerReflection/"
                              "ServerReflectionInfo")),
            Frame(kDataFrame, kEndStream, StreamNumber(i),
                  absl::StrCat(absl::string_view("\0\0\0\0\x04", 5),
                               "\x0a\x02\xff\xfe")));
      }
      return frames;
    });
  }

  // Requests of 4 MiB that would take hundreds of MiB when parsed.
  void RequestsOfEmptyMessages() const {
    tessera::v1::ReshardRequest request;
    request.mutable_source()->set_path(path_);
    for (int i = 0; i < 2'000'000; ++i) request.add_placements();
    const auto jobs = tessera::v1::JobService::NewStub(channel_);
    while (true) {
      grpc::ClientContext context;
      SendToken("two", context);
      google::longrunning::Operation operation;
      jobs->Reshard(&context, request, &operation);
    }
  }

  // Requests of 3 MiB that are parsed, and then name a tensor that does not
  // exist.
  void RequestsOfManyParts() const {
    tessera::v1::ReadTensorsRequest request;
    request.mutable_source()->set_path(path_);
    for (int i = 0; i < 500'000; ++i) {
      request.mutable_parts()->add_parts()->set_name("?");
    }
    while (true) {
      grpc::ClientContext context;
      SendToken("two", context);
      const auto reader = stub_->ReadTensors(&context, request);
      tessera::v1::ReadTensorsResponse response;
      while (reader->Read(&response)) {
      }
      reader->Finish();
    }
  }

  // For a client that may write.
  void PlansForManyRanks() const {
    tessera::v1::ConvertRequest request;
    request.mutable_source()->set_path(names_path_);
    request.mutable_destination()->set_path(names_path_ + "-plan");
    request.set_format(tessera::v1::FORMAT_DCP);
    request.mutable_options()->set_validate_only(true);
    auto* const axis = request.mutable_mesh()->add_axes();
    axis->set_name("shard");
    axis->set_size(1024);
    const auto jobs = tessera::v1::JobService::NewStub(channel_);
    while (true) {
      grpc::ClientContext context;
      SendToken("three", context);
      google::longrunning::Operation operation;
      jobs->Convert(&context, request, &operation);
    }
  }

  // Opens more connections than there are descriptors; some begin HTTP/2.
  void IdleConnections() const {
    std::vector<std::unique_ptr<RawConnection>> connections;
    const size_t num = num_descriptors_ * 2;
    for (size_t i = 0; i < num; ++i) {
      connections.push_back(std::make_unique<RawConnection>(address_));
      if (i % 2 == 0) connections.back()->Send(Preface());
    }
    absl::Notification().WaitForNotification();
  }

  // Begins as many streams as the client may have, and more.
  void UnreadStreams() const {
    const tessera::v1::ReadTensorsRequest request = MakeReadRequest(path_);
    while (true) {
      std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
      std::vector<
          std::unique_ptr<grpc::ClientReader<tessera::v1::ReadTensorsResponse>>>
          readers;
      for (size_t i = 0; i < kUnreadStreams; ++i) {
        contexts.push_back(std::make_unique<grpc::ClientContext>());
        SendToken("two", *contexts.back());
        readers.push_back(stub_->ReadTensors(contexts.back().get(), request));
      }
      absl::Notification().WaitForNotificationWithTimeout(absl::Seconds(2));
      for (size_t i = 0; i < readers.size(); ++i) {
        contexts[i]->TryCancel();
        readers[i]->Finish();
      }
    }
  }

  void CancelledInspects() const {
    tessera::v1::InspectRequest request;
    request.mutable_source()->set_path(names_path_);
    for (int i = 0; i < kManyPatterns; ++i) {
      request.add_names(absl::StrCat("*a*e*l*.*", i % 10, "*.*m*p*", i, "*z"));
    }
    while (true) {
      grpc::ClientContext context;
      SendToken("two", context);
      context.set_deadline(
          absl::ToChronoTime(absl::Now() + absl::Milliseconds(20)));
      tessera::v1::InspectResponse response;
      stub_->Inspect(&context, request, &response);
    }
  }

 private:
  const std::string address_;
  const size_t num_descriptors_;
  const std::string path_;
  const std::string names_path_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<tessera::v1::CheckpointService::Stub> stub_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_ATTACKS_H_
