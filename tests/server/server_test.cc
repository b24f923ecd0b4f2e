// SPDX-License-Identifier: Apache-2.0

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
#include "dcp/base/steady_time.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "server/transport/guarded_connections.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tests/server/hooked_file_system.h"
#include "tests/server/server_fixture.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::Authority;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace v1 = tessera::v1;

using ::dcp::testing::kInvalid;

using ServerTest = ServerFixture;

TEST_F(ServerTest, ReportsHealth) {
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, EachServiceReportsHealth) {
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

TEST_F(ServerTest, ReflectionListsServices) {
  Start();
  GenericStream stream(Plaintext(), kReflection, kListServices);
  EXPECT_THAT(stream.Read(), HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ServerTest, ServesBothReflectionVersions) {
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

TEST_F(ServerTest, HeldReflectionCallsBlockNobody) {
  Start();
  const auto channel = Plaintext();
  std::vector<std::unique_ptr<GenericStream>> held;
  for (int i = 0; i < 40; ++i) {
    held.push_back(
        std::make_unique<GenericStream>(channel, kReflection, kListServices));
  }
  for (const auto& stream : held) {
    EXPECT_THAT(stream->Read(), HasSubstr("tessera.v1.JobService"));
  }
  EXPECT_THAT(GenericStream(channel, kReflection, kListServices).Read(),
              HasSubstr("tessera.v1.JobService"));
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

TEST_F(ServerTest, RefusesAPortInUse) {
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

TEST_F(ServerTest, WithoutTlsServesOnlyThisMachine) {
  options_.listen = "0.0.0.0:0";
  EXPECT_THAT(Server::Create(options_),
              StatusIs(kInvalid, HasSubstr("without TLS")));
  options_.allow_insecure = true;
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

TEST_F(ServerTest, FindsMistakesBeforeServing) {
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

TEST_F(ServerTest, ClientsCheckTheServersCertificate) {
  Authority authority(dir_, "ca");
  Authority other(dir_, "other-ca");
  UseTls(authority.Sign("server"));
  Start();
  EXPECT_EQ(Health(Tls(other.cert())), kUnavailable);
}

TEST_F(ServerTest, CountsFailedHandshakes) {
  Authority authority(dir_, "ca");
  UseTls(authority.Sign("server"));
  Start();
  const uint64_t before = NumFailedHandshakes();
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
  const absl::Duration end = SteadyNow() + absl::Minutes(1);
  while (NumFailedHandshakes() == before && SteadyNow() < end) {
    std::this_thread::yield();
  }
  EXPECT_GT(NumFailedHandshakes(), before);
}

TEST_F(ServerTest, MutualTlsRequiresAClientCertificate) {
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

TEST_F(ServerTest, ReloadsCertificates) {
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

TEST_F(ServerTest, DrainingReportsNotServingAndEnds) {
  Start();
  GenericStream watch(Plaintext(), kHealthWatch, "");
  EXPECT_EQ(watch.Read(), kServing);
  server_->Drain();
  EXPECT_EQ(watch.Read(), kNotServing);
  EXPECT_EQ(watch.Read(), "");
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
}

TEST_F(ServerTest, DestructionUnlocksTheState) {
  Start();
  EXPECT_THAT(Server::Create(options_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  server_ = nullptr;
  Start();
  EXPECT_EQ(Health(Plaintext()), kServing);
}

// The code from Inspect for that path with that token.
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

TEST_F(ServerTest, CallsRequireATokenIfTokensAreSet) {
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

TEST_F(ServerTest, DeniesPathsOutsideTheRoots) {
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

// Two roots. One does not answer until it is told to, like a mount without a
// server.
class HungRootTest : public ServerTest {
 protected:
  HungRootTest() {
    for (const char* name : {"hung", "sound"}) {
      dir_.WriteFile(absl::StrCat(name, "/m.safetensors"),
                     SafetensorsImage(1 << 20));
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

TEST_F(HungRootTest, BlocksNeitherOtherRootsNorHealth) {
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

TEST_F(HungRootTest, DrainEndsWhileThreadsAreBlocked) {
  EXPECT_THAT(Inspect("hung"), StatusIs(absl::StatusCode::kUnavailable));
  server_->Drain();
  EXPECT_FALSE(answers_.HasBeenNotified());
  EXPECT_EQ(Health(Plaintext()), kUnavailable);
}

TEST_F(ServerTest, DrainEndsIdleStreams) {
  options_.drain = absl::ZeroDuration();
  dir_.WriteFile("data/m.safetensors", SafetensorsImage(uint64_t{64} << 20));
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
