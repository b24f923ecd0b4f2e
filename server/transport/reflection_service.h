// ReflectionService: grpc.reflection.v1 for the descriptors that are linked
// into the program. Tools ask for it before v1alpha, which is the only version
// that gRPC 1.51 itself provides; the server offers both. Any thread.
#ifndef SERVER_TRANSPORT_REFLECTION_SERVICE_H_
#define SERVER_TRANSPORT_REFLECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
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

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_REFLECTION_SERVICE_H_
