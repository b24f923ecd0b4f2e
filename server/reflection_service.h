// ReflectionService: grpc.reflection.v1, which tools ask for before v1alpha,
// over the descriptors that are linked into the program. gRPC 1.51 has v1alpha
// only, which stays beside it. Any thread.
#ifndef SERVER_REFLECTION_SERVICE_H_
#define SERVER_REFLECTION_SERVICE_H_

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
  // Full names of what the server serves.
  explicit ReflectionService(std::vector<std::string> services)
      : services_(std::move(services)) {}

  grpc::ServerBidiReactor<grpc::reflection::v1::ServerReflectionRequest,
                          grpc::reflection::v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

}  // namespace dcp::server

#endif  // SERVER_REFLECTION_SERVICE_H_
