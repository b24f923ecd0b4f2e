// SPDX-License-Identifier: Apache-2.0

#include "server/transport/compression.h"

#include <zlib.h>

#include <atomic>

#include "absl/base/attributes.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace dcp::server {
namespace {

std::atomic<uint64_t>& MaxMessageBytes() {
  static std::atomic<uint64_t> max_bytes{UINT64_MAX};
  return max_bytes;
}

}  // namespace

void BoundDecompression(uint64_t max_message_bytes) {
  MaxMessageBytes() = max_message_bytes;
}

void CompressIfAsked(grpc::CallbackServerContext& context) {
  const auto [begin, end] =
      context.client_metadata().equal_range("accept-encoding");
  for (auto asked = begin; asked != end; ++asked) {
    const absl::string_view value(asked->second.data(), asked->second.size());
    for (const absl::string_view encoding : absl::StrSplit(value, ',')) {
      if (absl::StripAsciiWhitespace(encoding) != "gzip") continue;
      context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
      return;
    }
  }
}

}  // namespace dcp::server

// The linker prescribes these names.
extern "C" int __real_inflate(z_streamp stream, int flush);
extern "C" int __wrap_inflate(z_streamp stream, int flush);

ABSL_ATTRIBUTE_NOINLINE int __wrap_inflate(z_streamp stream, int flush) {
  if (stream->total_out <= dcp::server::MaxMessageBytes()) {
    return __real_inflate(stream, flush);
  }
  // Makes gRPC believe that the input was consumed and complete.
  stream->next_in += stream->avail_in;
  stream->avail_in = 0;
  return Z_STREAM_END;
}
