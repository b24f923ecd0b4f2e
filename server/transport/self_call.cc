// SPDX-License-Identifier: Apache-2.0
// Checks the server's health over an in-process channel.
//
// Tested by tests/server/server_watch_test.cc.
#include "server/transport/self_call.h"

#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"

namespace dcp::server {
namespace {

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";

}  // namespace

SelfCall::SelfCall(grpc::Server& server)
    : channel_(server.InProcessChannel(grpc::ChannelArguments())) {}

void SelfCall::WaitForAnswer() {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    context_ = &context;
  }
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  const grpc::Slice no_bytes;  // asks for the server as a whole
  const grpc::ByteBuffer request(&no_bytes, 1);
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  ended_call_.SignalAll();
}

void SelfCall::End() {
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  if (context_ != nullptr) context_->TryCancel();
  while (context_ != nullptr) ended_call_.Wait(&mutex_);
}

}  // namespace dcp::server
