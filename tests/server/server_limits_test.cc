// SPDX-License-Identifier: Apache-2.0
// Requests that the server refuses because they are too large, too many or
// malformed, and answers that it compresses.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "server/transport/guarded_connections.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::Authority;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace v1 = tessera::v1;

class ServerLimitsTest : public ServerFixture {
 protected:
  // The answer to a request with empty placements, for Convert or Reshard. Each
  // placement has two bytes and takes a hundred in memory.
  grpc::Status SendPlacements(absl::string_view method, uint64_t num_bytes) {
    const absl::string_view empty(method == "Convert" ? "\x2a\0" : "\x22\0", 2);
    std::string placements;
    while (placements.size() < num_bytes) absl::StrAppend(&placements, empty);
    GenericStream call(Plaintext(),
                       absl::StrCat("/tessera.v1.JobService/", method).c_str(),
                       placements);
    EXPECT_EQ(call.Read(), "");
    return call.Finish();
  }
};

TEST_F(ServerLimitsTest, ServesAfterRefusingAHugeRequest) {
  Start();
  const auto stub = v1::CheckpointService::NewStub(Plaintext());
  v1::InspectRequest request;
  request.add_names(std::string(options_.max_request_bytes + 1, 'x'));
  grpc::ClientContext context;
  v1::InspectResponse response;
  EXPECT_EQ(stub->Inspect(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerLimitsTest, ServesCompressedRequests) {
  dir_.WriteFile("data/t.safetensors", SafetensorsImage(10));
  Start();
  const auto stub = v1::CheckpointService::NewStub(Plaintext());
  v1::InspectRequest request;
  request.mutable_source()->set_path(dir_.Join("data/t.safetensors"));
  for (int i = 0; i < 900; ++i) request.add_names(std::string(1000, 'x'));
  request.add_names("t");
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::InspectResponse response;
    const grpc::Status status = stub->Inspect(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.tensors_size(), 1);
  }
}

// It is refused like a request that was not compressed.
TEST_F(ServerLimitsTest, RefusesARequestThatUnpacksToTooMuch) {
  Start();
  const auto stub = v1::CheckpointService::NewStub(Plaintext());
  v1::InspectRequest request;
  for (const uint64_t more : {uint64_t{1}, uint64_t{60} << 20}) {
    request.clear_names();
    request.add_names(std::string(options_.max_request_bytes + more, 'x'));
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::InspectResponse response;
    const grpc::Status status = stub->Inspect(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  }
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// A channel that does not decompress messages shows how they were sent.
TEST_F(ServerLimitsTest, CompressesAnswersOnRequest) {
  std::string header = absl::StrCat("{\"__metadata__\":{\"k\":\"",
                                    std::string(900, 'k'), "\"}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 0xFF);
  file[1] = static_cast<char>(header.size() >> 8);
  dir_.WriteFile("data/t.safetensors", file + header);
  Start();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      address_, grpc::InsecureChannelCredentials(), arguments);
  v1::InspectRequest request;
  request.mutable_source()->set_path(dir_.Join("data/t.safetensors"));
  const auto answer = [&](const char* method, const char* encoding) {
    GenericStream call(channel, method, request.SerializeAsString(), encoding);
    return call.Read();
  };
  constexpr char kInspect[] = "/tessera.v1.CheckpointService/Inspect";
  constexpr absl::string_view kGzip = "\x1f\x8b";
  EXPECT_THAT(answer(kInspect, "gzip"), StartsWith(kGzip));
  EXPECT_THAT(answer(kInspect, "br, gzip"), StartsWith(kGzip));
  v1::InspectResponse response;
  ASSERT_TRUE(response.ParseFromString(answer(kInspect, nullptr)));
  EXPECT_EQ(response.properties().at("k"), std::string(900, 'k'));
  EXPECT_TRUE(response.ParseFromString(answer(kInspect, "identity")));
}

TEST_F(ServerLimitsTest, DoesNotCompressTensors) {
  dir_.WriteFile("data/t.safetensors", SafetensorsImage(10000));
  Start();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      address_, grpc::InsecureChannelCredentials(), arguments);
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(dir_.Join("data/t.safetensors"));
  request.mutable_parts()->add_parts()->set_name("t");
  GenericStream call(channel, "/tessera.v1.CheckpointService/ReadTensors",
                     request.SerializeAsString(), "gzip");
  v1::ReadTensorsResponse header;
  ASSERT_TRUE(header.ParseFromString(call.Read()));
  EXPECT_EQ(header.header().num_bytes(), 10000u);
  v1::ReadTensorsResponse chunk;
  ASSERT_TRUE(chunk.ParseFromString(call.Read()));
  EXPECT_EQ(chunk.chunk().data(), std::string(10000, '\0'));
}

TEST_F(ServerLimitsTest, RefusesLargeMetadata) {
  Start();
  const auto stub = v1::CheckpointService::NewStub(Plaintext());
  grpc::ClientContext context;
  context.AddMetadata("authorization", std::string(1 << 20, 'x'));
  v1::InspectResponse response;
  EXPECT_FALSE(stub->Inspect(&context, {}, &response).ok());
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// Sends `more` after `first` until the server ends the connection.
bool IsCut(RawConnection& connection, const std::string& first,
           const std::string& more) {
  if (!connection.Send(Preface()) || !connection.Send(first)) return false;
  for (int i = 0; i < 100'000 && connection.Send(more); ++i) {
    if (!connection.Drain()) break;
  }
  return connection.WaitForEnd();
}

TEST_F(ServerLimitsTest, CutsConnectionsWithEndlessHeaders) {
  Authority authority(dir_, "ca");
  for (const bool tls : {false, true}) {
    SCOPED_TRACE(tls);
    server_ = nullptr;
    if (tls) UseTls(authority.Sign("server"));
    Start();
    const uint64_t num_cut = NumConnectionsCut();
    RawConnection connection(address_, tls);
    ASSERT_TRUE(connection.is_connected());
    EXPECT_TRUE(IsCut(connection,
                      Frame(kHeadersFrame, 0, 1, CallHeaders("/a.B/C")),
                      Frame(kContinuationFrame, 0, 1, "")));
    EXPECT_EQ(NumConnectionsCut(), num_cut + 1);
    const auto channel = tls ? Tls(authority.cert()) : Plaintext();
    EXPECT_EQ(Health(channel), kServing);
  }
}

TEST_F(ServerLimitsTest, CutsConnectionsThatResetCallsAtOnce) {
  Start();
  const uint64_t num_cut = NumConnectionsCut();
  RawConnection connection(address_);
  ASSERT_TRUE(connection.Send(Preface()));
  for (uint32_t stream = 1; connection.Drain() && stream < 100'000;
       stream += 2) {
    const std::string call = absl::StrCat(
        Frame(kHeadersFrame, kEndHeaders, stream, CallHeaders(kHealthWatch)),
        Frame(kResetFrame, 0, stream, "code"));
    if (!connection.Send(call)) break;
  }
  EXPECT_TRUE(connection.WaitForEnd());
  EXPECT_EQ(NumConnectionsCut(), num_cut + 1);
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerLimitsTest, LimitsConnectionsAndRecovers) {
  options_.max_connections_per_address = 2;
  Start();
  auto first = std::make_unique<RawConnection>(address_);
  const auto channel = Plaintext();
  EXPECT_EQ(Health(channel), kServing);
  EXPECT_TRUE(RawConnection(address_).WaitForEnd());
  EXPECT_EQ(Health(channel), kServing) << "those that are there stay";
  first = nullptr;
  // gRPC closes it a moment later.
  std::string health;
  while (health != kServing) health = Health(Plaintext());
}

TEST_F(ServerLimitsTest, RefusesMalformedMessages) {
  Start();
  GenericStream call(Plaintext(), "/tessera.v1.CheckpointService/Inspect",
                     "\xff\xff\xff\xff");
  EXPECT_EQ(call.Read(), "");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// A message that would be malformed is not even parsed.
TEST_F(ServerLimitsTest, DoesNotParseRequestsWithoutAToken) {
  options_.tokens_file = dir_.WriteFile(
      "tokens",
      "a 7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n");
  Start();
  int num_methods = 0;
  for (const char* name :
       {"tessera.v1.CheckpointService", "tessera.v1.JobService",
        "google.longrunning.Operations"}) {
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      ++num_methods;
      const std::string method =
          absl::StrCat("/", name, "/", service->method(i)->name());
      GenericStream call(Plaintext(), method.c_str(), "\xff\xff\xff\xff");
      EXPECT_EQ(call.Read(), "");
      EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << method;
    }
  }
  EXPECT_EQ(num_methods, 16);
}

// Each two bytes become a message that takes a hundred.
TEST_F(ServerLimitsTest, ParsesRequestsInTheClientsMemory) {
  options_.max_memory_bytes = uint64_t{64} << 20;
  Start();
  for (const char* method : {"Convert", "Reshard"}) {
    const grpc::Status status = SendPlacements(method, uint64_t{700} << 10);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("client-memory"));
  }
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// However much memory there is.
TEST_F(ServerLimitsTest, DoesNotParseRequestsThatGrowTooMuch) {
  options_.max_memory_bytes = uint64_t{4} << 30;
  Start();
  for (const char* method : {"Convert", "Reshard"}) {
    const grpc::Status status =
        SendPlacements(method, options_.max_request_bytes - 2);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("16 times max-request"));
  }
}

// gRPC parses requests on threads that all clients share.
TEST_F(ServerLimitsTest, LimitsTheRateOfCostlyRequests) {
  options_.max_memory_bytes = uint64_t{1} << 30;
  options_.max_requests_per_second = 50;
  Start();
  // Each takes 40 MiB; 3 MiB a second are allowed, and 31 at once.
  EXPECT_EQ(SendPlacements("Convert", uint64_t{700} << 10).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status = SendPlacements("Convert", uint64_t{700} << 10);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("max-requests-per-second"));
  // The same client may do something small.
  EXPECT_EQ(SendPlacements("Convert", 10).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace dcp::server
