// SPDX-License-Identifier: Apache-2.0

#include "server/transport/reflection_service.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/longrunning/operations_proto.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp::server {
namespace {

namespace reflection_v1 = grpc::reflection::v1;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The service behind a real server, and a client.
class ReflectionServiceTest : public ::testing::Test {
 protected:
  ReflectionServiceTest()
      : service_({"tessera.v1.JobService", "grpc.health.v1.Health"}) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = reflection_v1::ServerReflection::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  // Sends all requests on one stream.
  std::vector<reflection_v1::ServerReflectionResponse> Ask(
      const std::vector<reflection_v1::ServerReflectionRequest>& requests) {
    grpc::ClientContext context;
    const auto stream = stub_->ServerReflectionInfo(&context);
    std::vector<reflection_v1::ServerReflectionResponse> responses;
    for (const reflection_v1::ServerReflectionRequest& request : requests) {
      EXPECT_TRUE(stream->Write(request));
      EXPECT_TRUE(stream->Read(&responses.emplace_back()));
    }
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return responses;
  }

  reflection_v1::ServerReflectionResponse AskForSymbol(
      const std::string& symbol) {
    reflection_v1::ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    return Ask({request}).front();
  }

  ReflectionService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<reflection_v1::ServerReflection::Stub> stub_;
};

TEST_F(ReflectionServiceTest, ListsServices) {
  reflection_v1::ServerReflectionRequest request;
  request.set_host("here");
  request.set_list_services("");
  const reflection_v1::ServerReflectionResponse response =
      Ask({request}).front();
  EXPECT_EQ(response.valid_host(), "here");
  EXPECT_EQ(response.original_request().host(), "here");
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names,
              ElementsAre("tessera.v1.JobService", "grpc.health.v1.Health"));
}

// A client without any files builds the service from those that it gets.
TEST_F(ReflectionServiceTest, FilesBuildACompletePool) {
  const reflection_v1::ServerReflectionResponse response =
      AskForSymbol("tessera.v1.JobService.Reshard");
  const auto& files =
      response.file_descriptor_response().file_descriptor_proto();
  ASSERT_GT(files.size(), 1);
  google::protobuf::FileDescriptorProto first;
  ASSERT_TRUE(first.ParseFromString(files[0]));
  EXPECT_EQ(first.name(), "tessera/v1/job_service.proto");
  google::protobuf::SimpleDescriptorDatabase database;
  for (const std::string& bytes : files) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    EXPECT_TRUE(database.Add(file)) << file.name() << " came twice";
  }
  google::protobuf::DescriptorPool pool(&database);
  const auto* service = pool.FindServiceByName("tessera.v1.JobService");
  ASSERT_NE(service, nullptr);
  EXPECT_NE(service->FindMethodByName("Reshard"), nullptr);
}

// Generators of clients look for these options.
TEST_F(ReflectionServiceTest, JobMethodsNameTheirResponseType) {
  const google::protobuf::ServiceDescriptor* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
          "tessera.v1.JobService");
  ASSERT_NE(service, nullptr);
  int num_found = 0;
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service->method(i);
    if (method.server_streaming()) continue;
    const google::longrunning::OperationInfo& info =
        method.options().GetExtension(google::longrunning::operation_info);
    EXPECT_EQ(info.metadata_type(), "JobMetadata") << method.name();
    EXPECT_EQ(info.response_type(),
              method.name() == "Verify" ? "VerifyReport" : "ConvertResult");
    // Both are in the service's own package.
    for (const std::string& type :
         {info.metadata_type(), info.response_type()}) {
      EXPECT_NE(service->file()->pool()->FindMessageTypeByName(
                    absl::StrCat("tessera.v1.", type)),
                nullptr);
    }
    ++num_found;
  }
  EXPECT_EQ(num_found, 4);
}

TEST_F(ReflectionServiceTest, FindsExtensions) {
  reflection_v1::ServerReflectionRequest numbers;
  numbers.set_all_extension_numbers_of_type("google.protobuf.MethodOptions");
  reflection_v1::ServerReflectionRequest file;
  file.mutable_file_containing_extension()->set_containing_type(
      "google.protobuf.MethodOptions");
  file.mutable_file_containing_extension()->set_extension_number(1049);
  reflection_v1::ServerReflectionRequest name;
  name.set_file_by_filename("google/longrunning/operations_proto.proto");
  const auto responses = Ask({numbers, file, name});
  const auto& found = responses[0].all_extension_numbers_response();
  EXPECT_EQ(found.base_type_name(), "google.protobuf.MethodOptions");
  EXPECT_THAT(found.extension_number(), Contains(1049));
  ASSERT_GT(
      responses[1].file_descriptor_response().file_descriptor_proto_size(), 0);
  EXPECT_EQ(responses[1].file_descriptor_response().SerializeAsString(),
            responses[2].file_descriptor_response().SerializeAsString());
}

TEST_F(ReflectionServiceTest, StreamContinuesAfterAnUnknownName) {
  reflection_v1::ServerReflectionRequest symbol;
  symbol.set_file_containing_symbol("no.Such");
  reflection_v1::ServerReflectionRequest file;
  file.set_file_by_filename("../../etc/passwd");
  reflection_v1::ServerReflectionRequest extension;
  extension.mutable_file_containing_extension()->set_containing_type("no.Such");
  reflection_v1::ServerReflectionRequest numbers;
  numbers.set_all_extension_numbers_of_type("no.Such");
  for (const auto& response : Ask({symbol, file, extension, numbers})) {
    EXPECT_EQ(response.error_response().error_code(), 5);  // NOT_FOUND
    EXPECT_THAT(response.error_response().error_message(),
                HasSubstr("there is no "));
  }
  const auto nothing = Ask({reflection_v1::ServerReflectionRequest()}).front();
  EXPECT_EQ(nothing.error_response().error_code(), 3);  // INVALID_ARGUMENT
}

}  // namespace
}  // namespace dcp::server
