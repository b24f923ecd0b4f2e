// SPDX-License-Identifier: Apache-2.0
// CallerSource: a tensor in the caller's memory, or from a function that the
// caller provides. Internal; see tessera_file_add_tensor for threads and
// ownership.
#ifndef CAPI_CALLER_SOURCE_H_
#define CAPI_CALLER_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "capi/tessera.h"
#include "dcp/base/bytes.h"
#include "dcp/base/streaming_copy.h"
#include "dcp/checkpoint/output/tensor_source.h"

namespace dcp::capi {

class CallerSource final : public TensorSource {
 public:
  CallerSource(const void* data, tessera_fill fill, void* context)
      : data_(static_cast<const uint8_t*>(data)),
        fill_(fill),
        context_(context) {}

  absl::Status Fill(uint64_t offset, MutableByteSpan dst) override {
    if (data_ != nullptr) {
      StreamingCopy(dst.data(), data_ + offset, dst.size());
      return absl::OkStatus();
    }
    if (fill_(context_, offset, dst.data(), dst.size()) == 0) {
      return absl::OkStatus();
    }
    return absl::AbortedError("the tensor's source failed");
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  const uint8_t* const data_;
  const tessera_fill fill_;
  void* const context_;
};

}  // namespace dcp::capi

#endif  // CAPI_CALLER_SOURCE_H_
