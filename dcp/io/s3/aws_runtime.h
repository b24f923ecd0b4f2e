// SPDX-License-Identifier: Apache-2.0
// AwsRuntime: shared by all users of Amazon's C libraries in one process: the
// libraries themselves, two threads for sockets, one to resolve host names. It
// is created on first use and lives as long as the process. A process that
// forks must do so before: threads do not survive a fork.
#ifndef DCP_IO_S3_AWS_RUNTIME_H_
#define DCP_IO_S3_AWS_RUNTIME_H_

#include <aws/common/byte_buf.h>

#include "absl/strings/string_view.h"

struct aws_allocator;
struct aws_client_bootstrap;
struct aws_event_loop_group;

namespace dcp {

struct AwsRuntime {
  aws_allocator* allocator = nullptr;
  aws_event_loop_group* event_loops = nullptr;
  aws_client_bootstrap* bootstrap = nullptr;

  static const AwsRuntime& Get();
};

// Views, in the library's terms and back.
inline aws_byte_cursor ToCursor(absl::string_view text) {
  return aws_byte_cursor_from_array(text.data(), text.size());
}
inline absl::string_view ToView(const aws_byte_cursor& cursor) {
  return absl::string_view(reinterpret_cast<const char*>(cursor.ptr),
                           cursor.len);
}

}  // namespace dcp

#endif  // DCP_IO_S3_AWS_RUNTIME_H_
