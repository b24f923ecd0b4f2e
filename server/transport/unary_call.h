// SPDX-License-Identifier: Apache-2.0
// UnaryCall: a call with one answer that signals when the client is gone. The
// service that answers calls Finish once. It deletes itself.
#ifndef SERVER_TRANSPORT_UNARY_CALL_H_
#define SERVER_TRANSPORT_UNARY_CALL_H_

#include <stop_token>

#include "grpcpp/support/server_callback.h"

namespace dcp::server {

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  std::stop_token stop() const { return stop_.get_token(); }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::stop_source stop_;
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_UNARY_CALL_H_
