// SPDX-License-Identifier: Apache-2.0
// Hostile clients of a loaded server: messages and paths that every method
// refuses, and connections that send nothing or nonsense. The main function is
// in load_test.cc.
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/longrunning/operations_proto.grpc.pb.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"
#include "tessera/v1/job_service.grpc.pb.h"
#include "tests/server/jobs/job_server.h"
#include "tests/server/load_fixture.h"
#include "tests/server/server_process.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
namespace v1 = tessera::v1;

using HostileLoadTest = LoadFixture;

// The full names of all methods of these services.
std::vector<std::string> MethodNames(const std::vector<std::string>& services) {
  std::vector<std::string> methods;
  for (const std::string& name : services) {
    const google::protobuf::ServiceDescriptor& service =
        *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            name);
    for (int i = 0; i < service.method_count(); ++i) {
      methods.push_back(
          absl::StrCat("/", name, "/", service.method(i)->name()));
    }
  }
  return methods;
}

// The status of a call that sends only this message.
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

TEST_F(HostileLoadTest, EveryMethodRefusesHostileMessages) {
  const std::string before = Files();
  const auto channel = NewChannel(address_);
  for (const std::string& method :
       MethodNames({v1::CheckpointService::service_full_name(),
                    v1::JobService::service_full_name(),
                    google::longrunning::Operations::service_full_name()})) {
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

// A field that all requests have: a message that begins with a path, such as
// Source and Destination.
std::string SourceBytes(const std::string& path) {
  v1::InspectRequest request;
  request.mutable_source()->set_path(path);
  return request.SerializeAsString();
}

TEST_F(HostileLoadTest, EveryMethodRefusesPathsOutsideRoots) {
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
    for (const std::string& method :
         MethodNames({v1::CheckpointService::service_full_name()})) {
      const std::string bytes = absl::EndsWith(method, "/ReadTensors")
                                    ? MakeReadRequest(path).SerializeAsString()
                                    : SourceBytes(path);
      EXPECT_EQ(CallRaw(channel, method, bytes, "one").error_code(), code)
          << method;
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

TEST_F(HostileLoadTest, EndsSilentAndNonsenseConnections) {
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
  // The server closes each when the time for the handshake is over.
  for (const auto& connection : silent) connection->ReadAll();
  silent.clear();
  ExpectServes();
  std::cout << absl::GetFlag(FLAGS_connections) << " silent connections; "
            << server_->num_descriptors() << " descriptors after, " << before
            << " before\n";
  EXPECT_LE(server_->num_descriptors(), before + 20);
}

}  // namespace
}  // namespace dcp::server
