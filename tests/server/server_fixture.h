// SPDX-License-Identifier: Apache-2.0
// ServerFixture: a whole server in this process, and channels to it. Calls are
// made without the generated stubs, so that they may be wrong. For tests.
#ifndef TESTS_SERVER_SERVER_FIXTURE_H_
#define TESTS_SERVER_SERVER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "server/options/server_options.h"
#include "server/server.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {

inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
inline constexpr char kHealthWatch[] = "/grpc.health.v1.Health/Watch";
inline constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// Messages as protobuf encodes them: status = SERVING, NOT_SERVING, and
// list_services = "*".
inline constexpr absl::string_view kServing = "\x08\x01";
inline constexpr absl::string_view kNotServing = "\x08\x02";
inline constexpr absl::string_view kListServices = "\x3a\x01*";

inline grpc::ByteBuffer ToBuffer(absl::string_view text) {
  const grpc::Slice slice(text.data(), text.size());
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string ToText(const grpc::ByteBuffer& buffer) {
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

// A file with one tensor "t" of `num_bytes` zero bytes.
inline std::string SafetensorsImage(uint64_t num_bytes) {
  const std::string header =
      absl::StrCat("{\"t\":{\"dtype\":\"U8\",\"shape\":[", num_bytes,
                   "],\"data_offsets\":[0,", num_bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  absl::StrAppend(&file, header);
  file.resize(file.size() + num_bytes);
  return file;
}

// The server's health, or the error code.
inline std::string Health(const std::shared_ptr<grpc::Channel>& channel) {
  GenericStream call(channel, kHealthCheck, "");
  std::string answer = call.Read();
  const grpc::Status status = call.Finish();
  return status.ok() ? answer : absl::StrCat("code ", status.error_code());
}
inline constexpr absl::string_view kUnavailable = "code 14";

class ServerFixture : public ::testing::Test {
 protected:
  ServerFixture() {
    dir_.WriteFile("data/step-1/x", "");
    options_.listen = "127.0.0.1:0";
    options_.roots = {{.path = dir_.Join("data"), .writable = true}};
    options_.state_dir = dir_.Join("state");
  }

  // Starts a server and sets the address.
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
  std::shared_ptr<grpc::Channel> Tls(
      const std::string& ca, const testing::CertificateFiles& client = {}) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = testing::ReadFile(ca);
    if (!client.cert.empty()) {
      ssl.pem_cert_chain = testing::ReadFile(client.cert);
      ssl.pem_private_key = testing::ReadFile(client.key);
    }
    return NewChannel(grpc::SslCredentials(ssl));
  }

  void UseTls(const testing::CertificateFiles& files) {
    options_.tls_cert = files.cert;
    options_.tls_key = files.key;
  }

  testing::TempDir dir_;
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::string address_;
};

}  // namespace dcp::server

#endif  // TESTS_SERVER_SERVER_FIXTURE_H_
