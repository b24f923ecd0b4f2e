// SPDX-License-Identifier: Apache-2.0
// Reads raw messages from a call through a completion queue.
//
// Tested by tests/client/tensor_reader_test.cc.
#include "client/message_stream.h"

#include "grpcpp/support/slice.h"

namespace dcp::client {

MessageStream::MessageStream(
    const std::shared_ptr<grpc::ChannelInterface>& channel,
    grpc::ClientContext& context, const std::string& method,
    const google::protobuf::MessageLite& request)
    : call_(grpc::GenericStub(channel).PrepareCall(&context, method, &queue_)) {
  const grpc::Slice slice(request.SerializeAsString());
  call_->StartCall(nullptr);
  open_ = Await();
  if (!open_) return;
  call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  open_ = Await();
}

MessageStream::~MessageStream() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool MessageStream::Await() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool MessageStream::Read(grpc::ByteBuffer& message) {
  if (!open_) return false;
  call_->Read(&message, nullptr);
  open_ = Await();
  return open_;
}

grpc::Status MessageStream::Finish() {
  grpc::Status status;
  call_->Finish(&status, nullptr);
  Await();
  return status;
}

}  // namespace dcp::client
