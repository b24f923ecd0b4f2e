// SPDX-License-Identifier: Apache-2.0
// MessageStream: a call that streams messages from the server, and hands them
// out as they were received. The classes that gRPC generates would parse and
// copy them. All calls block, and belong to one thread.
#ifndef CLIENT_MESSAGE_STREAM_H_
#define CLIENT_MESSAGE_STREAM_H_

#include <memory>
#include <string>

#include "google/protobuf/message_lite.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace dcp::client {

class MessageStream {
 public:
  // Calls `method`, "/package.Service/Method", with `request`. `context` must
  // outlive this.
  MessageStream(const std::shared_ptr<grpc::ChannelInterface>& channel,
                grpc::ClientContext& context, const std::string& method,
                const google::protobuf::MessageLite& request);
  ~MessageStream();
  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // Waits for the next message; false at the end.
  bool Read(grpc::ByteBuffer& message);
  // The status of the call. To be called once, after the last Read.
  grpc::Status Finish();

 private:
  // Waits for the operation that was started last, of which there is one.
  bool Await();

  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool open_ = false;  // the operations so far have succeeded
};

}  // namespace dcp::client

#endif  // CLIENT_MESSAGE_STREAM_H_
