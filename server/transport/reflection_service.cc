// SPDX-License-Identifier: Apache-2.0

#include "server/transport/reflection_service.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/support/server_callback.h"
#include "proto/utf8.h"

namespace dcp::server {
namespace {

namespace v1 = grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// The most bytes of a name that an error shows.
constexpr size_t kMaxNameBytesShown = 200;

void SetNotFound(absl::string_view what, absl::string_view name,
                 v1::ServerReflectionResponse& response) {
  v1::ErrorResponse& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
  error.set_error_message(
      absl::StrCat("there is no ", what, " '",
                   ToUtf8(name.substr(0, kMaxNameBytesShown)), "'"));
}

// Adds `file` and all files that it imports, each once.
void AddFiles(const FileDescriptor& file, std::set<std::string>& added,
              v1::FileDescriptorResponse& response) {
  if (!added.insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddFiles(*file.dependency(i), added, response);
  }
}

void SetFiles(const FileDescriptor* file, absl::string_view what,
              absl::string_view name, v1::ServerReflectionResponse& response) {
  if (file == nullptr) return SetNotFound(what, name, response);
  std::set<std::string> added;
  AddFiles(*file, added, *response.mutable_file_descriptor_response());
}

void SetExtensionNumbers(const DescriptorPool& pool, const std::string& type,
                         v1::ServerReflectionResponse& response) {
  const Descriptor* const message = pool.FindMessageTypeByName(type);
  if (message == nullptr) return SetNotFound("message", type, response);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(message, &extensions);
  v1::ExtensionNumberResponse& numbers =
      *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type);
  for (const FieldDescriptor* extension : extensions) {
    numbers.add_extension_number(extension->number());
  }
}

void Answer(const std::vector<std::string>& services,
            const v1::ServerReflectionRequest& request,
            v1::ServerReflectionResponse& response) {
  using Request = v1::ServerReflectionRequest;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(
            name);
      }
      return;
    case Request::kFileByFilename:
      return SetFiles(pool.FindFileByName(request.file_by_filename()), "file",
                      request.file_by_filename(), response);
    case Request::kFileContainingSymbol:
      return SetFiles(
          pool.FindFileContainingSymbol(request.file_containing_symbol()),
          "symbol", request.file_containing_symbol(), response);
    case Request::kFileContainingExtension: {
      const v1::ExtensionRequest& wanted = request.file_containing_extension();
      const Descriptor* const message =
          pool.FindMessageTypeByName(wanted.containing_type());
      const FieldDescriptor* const extension =
          message == nullptr
              ? nullptr
              : pool.FindExtensionByNumber(message, wanted.extension_number());
      return SetFiles(
          extension == nullptr ? nullptr : extension->file(),
          absl::StrCat("extension ", wanted.extension_number(), " of message"),
          wanted.containing_type(), response);
    }
    case Request::kAllExtensionNumbersOfType:
      return SetExtensionNumbers(pool, request.all_extension_numbers_of_type(),
                                 response);
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  v1::ErrorResponse& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  error.set_error_message("the request is of a kind that v1 does not have");
}

// Reads the next request after the previous answer is written.
class Stream final
    : public grpc::ServerBidiReactor<v1::ServerReflectionRequest,
                                     v1::ServerReflectionResponse> {
 public:
  explicit Stream(const std::vector<std::string>& services)
      : services_(services) {
    StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_.Clear();
    Answer(services_, request_, response_);
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }

  void OnDone() override { delete this; }

  const std::vector<std::string>& services_;
  v1::ServerReflectionRequest request_;
  v1::ServerReflectionResponse response_;
};

}  // namespace

grpc::ServerBidiReactor<v1::ServerReflectionRequest,
                        v1::ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext*) {
  return new Stream(services_);
}

// The same registration as in a generated service's constructor.
ReflectionAlphaService::ReflectionAlphaService(ReflectionService& service) {
  AddMethod(new grpc::internal::RpcServiceMethod(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodCallback(
      0, new grpc::internal::CallbackBidiHandler<v1::ServerReflectionRequest,
                                                 v1::ServerReflectionResponse>(
             [&service](grpc::CallbackServerContext* context) {
               return service.ServerReflectionInfo(context);
             }));
}

}  // namespace dcp::server
