// SPDX-License-Identifier: Apache-2.0
// SelfCall: a call from the server to itself, through all of gRPC except for
// the network, which shows whether gRPC's threads still answer.
#ifndef SERVER_TRANSPORT_SELF_CALL_H_
#define SERVER_TRANSPORT_SELF_CALL_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"

namespace dcp::server {

class SelfCall {
 public:
  // The server has been started.
  explicit SelfCall(grpc::Server& server);
  SelfCall(const SelfCall&) = delete;
  SelfCall& operator=(const SelfCall&) = delete;

  // Asks for the server's health and waits for the answer. Does not return
  // while nobody answers, except after End. Called by one thread at a time.
  void WaitForAnswer();

  // Ends a call in progress and makes no more. Must be called before the server
  // shuts down: gRPC 1.51 crashes when a channel in the process calls a server
  // that has. Any thread.
  void End();

 private:
  // Owners: this, and gRPC during a call.
  const std::shared_ptr<grpc::Channel> channel_;
  absl::Mutex mutex_;
  absl::CondVar ended_call_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  // For the call in progress; null without one.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_SELF_CALL_H_
