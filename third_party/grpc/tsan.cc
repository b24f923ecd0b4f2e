// SPDX-License-Identifier: Apache-2.0
// Makes ThreadSanitizer see gRPC's promise: memory that was written before a
// batch of operations started is visible to the thread that receives the tag.
//
// Debian's gRPC is compiled without ThreadSanitizer (third_party/tsan). The
// linker's --wrap (BUILD.bazel) sends the two calls through here. Linked only
// with --config=tsan.

#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

extern "C" {

grpc_call_error __real_grpc_call_start_batch(grpc_call* call,
                                             const grpc_op* ops, size_t num_ops,
                                             void* tag, void* reserved);
grpc_call_error __wrap_grpc_call_start_batch(grpc_call* call,
                                             const grpc_op* ops, size_t num_ops,
                                             void* tag, void* reserved) {
  __tsan_release(tag);
  return __real_grpc_call_start_batch(call, ops, num_ops, tag, reserved);
}

grpc_event __real_grpc_completion_queue_next(grpc_completion_queue* queue,
                                             gpr_timespec deadline,
                                             void* reserved);
grpc_event __wrap_grpc_completion_queue_next(grpc_completion_queue* queue,
                                             gpr_timespec deadline,
                                             void* reserved) {
  const grpc_event event =
      __real_grpc_completion_queue_next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // extern "C"
