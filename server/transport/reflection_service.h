// SPDX-License-Identifier: Apache-2.0
// ReflectionService and ReflectionAlphaService: grpc.reflection.v1 for the
// descriptors that are linked into the program, and v1alpha, for which older
// tools ask. The messages of both have the same bytes. gRPC's own v1alpha has a
// thread for each call, so that a few held calls would block it. Any thread.
#ifndef SERVER_TRANSPORT_REFLECTION_SERVICE_H_
#define SERVER_TRANSPORT_REFLECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace dcp::server {

class ReflectionService final
    : public grpc::reflection::v1::ServerReflection::CallbackService {
 public:
  // `services` are the full names of the services that the server offers.
  explicit ReflectionService(std::vector<std::string> services)
      : services_(std::move(services)) {}

  grpc::ServerBidiReactor<grpc::reflection::v1::ServerReflectionRequest,
                          grpc::reflection::v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

class ReflectionAlphaService final : public grpc::Service {
 public:
  // Answers as `service` does, which must outlive it.
  explicit ReflectionAlphaService(ReflectionService& service);
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_REFLECTION_SERVICE_H_
