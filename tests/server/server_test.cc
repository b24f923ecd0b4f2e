#include "server/server.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "server/transport/guarded_reads.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/hooked_file_system.h"
#include "tests/server/transport/raw_connection.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::Authority;
using ::dcp::testing::CertificateFiles;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace v1 = tessera::v1;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kHealthWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// Messages as protobuf encodes them: status = SERVING, NOT_SERVING, and
// list_services = "*".
constexpr absl::string_view kServing = "\x08\x01";
constexpr absl::string_view kNotServing = "\x08\x02";
constexpr absl::string_view kListServices = "\x3a\x01*";

grpc::ByteBuffer ToBuffer(absl::string_view text) {
  const grpc::Slice slice(text.data(), text.size());
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToText(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.Valid() || !buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
}

// A stream of any service, without code generated for it.
class GenericStream {
 public:
  // `accept_encoding` goes into the metadata if it is not null.
  GenericStream(std::shared_ptr<grpc::Channel> channel, const char* method,
                absl::string_view request,
                const char* accept_encoding = nullptr)
      : stub_(std::move(channel)) {
    if (accept_encoding != nullptr) {
      context_.AddMetadata("accept-encoding", accept_encoding);
    }
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Next();
    call_->WriteLast(ToBuffer(request), grpc::WriteOptions(), this);
    Next();
  }
  ~GenericStream() {
    context_.TryCancel();
    queue_.Shutdown();
    while (Next()) {
    }
  }

  // The next message; empty at the end.
  std::string Read() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, this);
    return Next() ? ToText(buffer) : "";
  }

  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// A file with one tensor "t" of so many zero bytes.
std::string SafetensorsOf(uint64_t num_bytes) {
  const std::string header =
      absl::StrCat("{\"t\":{\"dtype\":\"U8\",\"shape\":[", num_bytes,
                   "],\"data_offsets\":[0,", num_bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  absl::StrAppend(&file, header);
  file.resize(file.size() + num_bytes);
  return file;
}

// The state of the server's health, or the error's code.
std::string Health(const std::shared_ptr<grpc::Channel>& channel) {
  GenericStream call(channel, kHealthCheck, "");
  std::string answer = call.Read();
  const grpc::Status status = call.Finish();
  return status.ok() ? answer : absl::StrCat("code ", status.error_code());
}
constexpr absl::string_view kUnavailable = "code 14";

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    dir_.WriteFile("data/step-1/x", "");
    options_.listen = "127.0.0.1:0";
    options_.roots = {{.path = dir_.Join("data"), .writable = true}};
    options_.state_dir = dir_.Join("state");
  }

  // A server and its address.
  void Start() {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(options_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    ASSERT_OK_AND_ASSIGN(address_, server_->Start());
  }

  std::shared_ptr<grpc::Channel> Plaintext() {
    return NewChannel(grpc::InsecureChannelCredentials());
  }

  // The channel does not share connections: a failed one is not retried at
  // once.
  std::shared_ptr<grpc::Channel> NewChannel(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address_, credentials, arguments);
  }

  // With the certificate that the client shows, if it has one.
  std::shared_ptr<grpc::Channel> Tls(const std::string& ca,
                                     const CertificateFiles& client = {}) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = testing::ReadFile(ca);
    if (!client.cert.empty()) {
      ssl.pem_cert_chain = testing::ReadFile(client.cert);
      ssl.pem_private_key = testing::ReadFile(client.key);
    }
    return NewChannel(grpc::SslCredentials(ssl));
  }

  void UseTls(const CertificateFiles& files) {
    options_.tls_cert = files.cert;
    options_.tls_key = files.key;
  }

  TempDir dir_;
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::string address_;
};

TEST_F(ServerTest, SaysThatItServes) {
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, EachServiceSaysThatItServes) {
  Start();
  for (const absl::string_view service :
       {"tessera.v1.CheckpointService", "tessera.v1.JobService",
        "google.longrunning.Operations"}) {
    // The field `service`.
    const std::string request = absl::StrCat(
        "\x0a", std::string(1, static_cast<char>(service.size())), service);
    GenericStream call(Plaintext(), kHealthCheck, request);
    EXPECT_EQ(call.Read(), kServing) << service;
  }
}

TEST_F(ServerTest, ReflectionNamesItsServices) {
  Start();
  GenericStream stream(Plaintext(), kReflection, kListServices);
  EXPECT_THAT(stream.Read(), HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ServerTest, ReflectionIsThereInBothVersions) {
  Start();
  const std::string alpha =
      GenericStream(Plaintext(), kReflection, kListServices).Read();
  const std::string v1 =
      GenericStream(Plaintext(),
                    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                    kListServices)
          .Read();
  for (const char* service :
       {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "google.longrunning.Operations", "tessera.v1.CheckpointService",
        "tessera.v1.JobService"}) {
    EXPECT_THAT(alpha, HasSubstr(service));
    EXPECT_THAT(v1, HasSubstr(service));
  }
}

TEST_F(ServerTest, ServesAUnixSocket) {
  // Bazel's folders have longer names than a socket may have.
  char dir[] = "/tmp/dcp_server_test_XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  options_.listen = absl::StrCat("unix:", dir, "/socket");
  Start();
  EXPECT_EQ(address_, options_.listen);
  EXPECT_EQ(Health(Plaintext()), kServing);
  server_ = nullptr;
  std::filesystem::remove_all(dir);
}

TEST_F(ServerTest, APortInUseIsAnError) {
  Start();
  ServerOptions options = options_;
  options.listen = address_;
  options.state_dir = dir_.Join("state-2");
  absl::StatusOr<std::unique_ptr<Server>> second = Server::Create(options);
  ASSERT_OK(second);
  EXPECT_THAT((*second)->Start(), StatusIs(absl::StatusCode::kUnavailable,
                                           HasSubstr("it is in use")));
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, WithoutTlsOnlyThisMachineIsServed) {
  options_.listen = "0.0.0.0:0";
  EXPECT_THAT(Server::Create(options_),
              StatusIs(kInvalid, HasSubstr("without TLS")));
  options_.allow_insecure = true;
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, MistakesAreFoundBeforeItServes) {
  const auto refused = [](const ServerOptions& options) {
    EXPECT_THAT(Server::Create(options), StatusIs(kInvalid));
  };
  ServerOptions options = options_;
  options.roots[0].path = dir_.Join("none");
  refused(options);
  options = options_;
  options.tokens_file = dir_.Join("none");
  refused(options);
  options = options_;
  options.tls_cert = options.tls_key = dir_.WriteFile("text", "x");
  refused(options);
  options = options_;
  options.state_dir = dir_.Join("data/state");
  refused(options);
}

TEST_F(ServerTest, TlsAndPlaintextDoNotMix) {
  Authority authority(dir_, "ca");
  Start();
  EXPECT_EQ(Health(Tls(authority.cert())), kUnavailable);
  server_ = nullptr;
  UseTls(authority.Sign("server"));
  Start();
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
  EXPECT_EQ(Health(Tls(authority.cert())), kServing);
}

TEST_F(ServerTest, TheServersCertificateIsOfTheRightAuthority) {
  Authority authority(dir_, "ca");
  Authority other(dir_, "other-ca");
  UseTls(authority.Sign("server"));
  Start();
  EXPECT_EQ(Health(Tls(other.cert())), kUnavailable);
}

TEST_F(ServerTest, MutualTlsWantsACertificateOfTheClient) {
  Authority authority(dir_, "ca");
  Authority clients(dir_, "client-ca");
  Authority other(dir_, "other-ca");
  UseTls(authority.Sign("server"));
  options_.tls_client_ca = clients.cert();
  Start();
  EXPECT_EQ(Health(Tls(authority.cert())), kUnavailable);
  EXPECT_EQ(Health(Tls(authority.cert(), other.Sign("stranger"))),
            kUnavailable);
  EXPECT_EQ(Health(Tls(authority.cert(), clients.Sign("client"))), kServing);
}

TEST_F(ServerTest, CertificatesAreReadAgain) {
  Authority authority(dir_, "ca");
  UseTls(authority.Sign("server"));
  Start();
  EXPECT_EQ(Health(Tls(authority.cert())), kServing);
  const auto old = Tls(authority.cert());
  EXPECT_EQ(Health(old), kServing);
  Authority other(dir_, "other-ca");
  other.Sign("server");
  server_->Reload();
  // gRPC sees it a moment later.
  std::string health;
  while (health != kServing) health = Health(Tls(other.cert()));
  EXPECT_EQ(Health(Tls(authority.cert())), kUnavailable);
  EXPECT_EQ(Health(old), kServing) << "connections that are there stay";
  // An invalid file is not used.
  dir_.WriteFile("server.key", "torn");
  server_->Reload();
  EXPECT_EQ(Health(Tls(other.cert())), kServing);
}

TEST_F(ServerTest, DrainingSaysThatItDoesNotServeAndEnds) {
  Start();
  GenericStream watch(Plaintext(), kHealthWatch, "");
  EXPECT_EQ(watch.Read(), kServing);
  server_->Drain();
  EXPECT_EQ(watch.Read(), kNotServing);
  EXPECT_EQ(watch.Read(), "");
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
}

TEST_F(ServerTest, TheStateIsFreeOnceItIsGone) {
  Start();
  EXPECT_THAT(Server::Create(options_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  server_ = nullptr;
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, AHugeRequestIsRefusedAndTheNextOneServed) {
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

TEST_F(ServerTest, CompressedRequestsAreServed) {
  dir_.WriteFile("data/t.safetensors", SafetensorsOf(10));
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
TEST_F(ServerTest, ARequestThatBecomesHugeIsRefused) {
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
TEST_F(ServerTest, AnswersAreCompressedForWhoAsks) {
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

TEST_F(ServerTest, TensorsAreNotCompressed) {
  dir_.WriteFile("data/t.safetensors", SafetensorsOf(10000));
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

TEST_F(ServerTest, LargeMetadataIsRefused) {
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

TEST_F(ServerTest, HeadersWithoutEndAreCut) {
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

TEST_F(ServerTest, CallsThatAreResetAtOnceAreCut) {
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

TEST_F(ServerTest, ConnectionsAreLimitedAndComeBack) {
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

// The code of an Inspect of that path with that token.
grpc::StatusCode Inspect(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& path, const std::string& token) {
  const auto stub = v1::CheckpointService::NewStub(channel);
  grpc::ClientContext context;
  if (!token.empty()) context.AddMetadata("authorization", token);
  v1::InspectRequest request;
  request.mutable_source()->set_path(path);
  v1::InspectResponse response;
  return stub->Inspect(&context, request, &response).error_code();
}

TEST_F(ServerTest, CallsWantATokenWhereThereAreTokens) {
  // The digest of "alice".
  options_.tokens_file = dir_.WriteFile(
      "tokens",
      "alice "
      "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\n");
  Start();
  const auto channel = Plaintext();
  const std::string path = dir_.Join("data/none");
  for (const char* wrong : {"", "Bearer bob", "Bearer", "Basic alice", "alice",
                            "Bearer alice bob"}) {
    EXPECT_EQ(Inspect(channel, path, wrong), grpc::StatusCode::UNAUTHENTICATED)
        << wrong;
  }
  EXPECT_EQ(Inspect(channel, path, "Bearer alice"),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Inspect(channel, path, "bearer  alice"),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Health(channel), kServing);
}

TEST_F(ServerTest, PathsOutsideOfTheRootsAreDenied) {
  dir_.WriteFile("secret/.metadata", "x");
  ASSERT_EQ(symlink(dir_.Join("secret").c_str(), dir_.Join("data/out").c_str()),
            0);
  Start();
  const auto channel = Plaintext();
  for (const char* outside : {"secret", "none", "data/out", "data/out/x"}) {
    EXPECT_EQ(Inspect(channel, dir_.Join(outside), ""),
              grpc::StatusCode::PERMISSION_DENIED)
        << outside;
  }
  for (const std::string& odd :
       {std::string("data"), dir_.Join("data/../secret"), std::string()}) {
    EXPECT_EQ(Inspect(channel, odd, ""), grpc::StatusCode::INVALID_ARGUMENT)
        << odd;
  }
  EXPECT_EQ(Inspect(channel, dir_.Join("data/none"), ""),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, AMessageThatIsNoneIsRefused) {
  Start();
  GenericStream call(Plaintext(), "/tessera.v1.CheckpointService/Inspect",
                     "\xff\xff\xff\xff");
  EXPECT_EQ(call.Read(), "");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// Two roots, one of which does not answer until it is told to, like a mount
// whose server is gone.
class HungRootTest : public ServerTest {
 protected:
  HungRootTest() {
    for (const char* name : {"hung", "sound"}) {
      dir_.WriteFile(absl::StrCat(name, "/m.safetensors"),
                     SafetensorsOf(1 << 20));
    }
    const std::string hung =
        std::filesystem::canonical(dir_.Join("hung")).string();
    options_.roots = {{.path = dir_.Join("hung")},
                      {.path = dir_.Join("sound")}};
    options_.disk_timeout = absl::Seconds(2);
    options_.drain = absl::ZeroDuration();
    auto fs = std::make_unique<HookedFileSystem>();
    fs->SetHook([this, hung](absl::string_view, absl::string_view path) {
      if (absl::StartsWith(path, hung)) answers_.WaitForNotification();
    });
    absl::StatusOr<std::unique_ptr<Server>> server =
        Server::Create(options_, std::move(fs));
    EXPECT_OK(server);
    server_ = *std::move(server);
    address_ = *server_->Start();
    stub_ = v1::CheckpointService::NewStub(Plaintext());
  }
  ~HungRootTest() override {
    if (!answers_.HasBeenNotified()) answers_.Notify();
    server_ = nullptr;
  }

  absl::Status Inspect(const std::string& root) {
    grpc::ClientContext context;
    v1::InspectRequest request;
    request.mutable_source()->set_path(dir_.Join(root) + "/m.safetensors");
    v1::InspectResponse response;
    return FromRpcStatus(stub_->Inspect(&context, request, &response), "");
  }

  absl::Status Read(const std::string& root) {
    grpc::ClientContext context;
    v1::ReadTensorsRequest request;
    request.mutable_source()->set_path(dir_.Join(root) + "/m.safetensors");
    request.mutable_parts()->add_parts()->set_name("t");
    const auto reader = stub_->ReadTensors(&context, request);
    v1::ReadTensorsResponse response;
    while (reader->Read(&response)) {
    }
    return FromRpcStatus(reader->Finish(), "");
  }

  absl::Status Verify(const std::string& root) {
    grpc::ClientContext context;
    v1::VerifyCheckpointRequest request;
    request.mutable_source()->set_path(dir_.Join(root) + "/m.safetensors");
    const auto reader = stub_->Verify(&context, request);
    v1::VerifyCheckpointResponse response;
    while (reader->Read(&response)) {
    }
    return FromRpcStatus(reader->Finish(), "");
  }

  absl::Notification answers_;
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

TEST_F(HungRootTest, ItHoldsNeitherOthersNorHealth) {
  using Call = std::function<absl::Status(const std::string& root)>;
  const Call calls[] = {
      [this](const std::string& root) { return Inspect(root); },
      [this](const std::string& root) { return Read(root); },
      [this](const std::string& root) { return Verify(root); }};
  {
    std::vector<std::jthread> threads;
    // More calls than the root has threads.
    for (int i = 0; i < 3; ++i) {
      for (const Call& call : calls) {
        threads.emplace_back([this, &call] {
          EXPECT_THAT(call("hung"),
                      StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("of root " + dir_.Join("hung"))));
        });
      }
    }
    for (const Call& call : calls) EXPECT_OK(call("sound"));
    EXPECT_EQ(Health(Plaintext()), kServing);
  }
  answers_.Notify();
  EXPECT_OK(Inspect("hung"));
  EXPECT_OK(Read("hung"));
}

TEST_F(HungRootTest, TheDrainEndsWhileThreadsAreHeld) {
  EXPECT_THAT(Inspect("hung"), StatusIs(absl::StatusCode::kUnavailable));
  server_->Drain();
  EXPECT_FALSE(answers_.HasBeenNotified());
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
}

TEST_F(ServerTest, AStreamThatIsNotReadEndsWithTheDrain) {
  options_.drain = absl::ZeroDuration();
  dir_.WriteFile("data/m.safetensors", SafetensorsOf(uint64_t{64} << 20));
  Start();
  const auto stub = v1::CheckpointService::NewStub(Plaintext());
  grpc::ClientContext context;
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(dir_.Join("data/m.safetensors"));
  request.mutable_parts()->add_parts()->set_name("t");
  const auto reader = stub->ReadTensors(&context, request);
  v1::ReadTensorsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server_->Drain();
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace dcp::server
