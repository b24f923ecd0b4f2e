// SPDX-License-Identifier: Apache-2.0
// A save's sources and a load's sinks: the memory of tensors on the CPU or an
// accelerator. Made by the thread that trains, used by the lane that saves or
// loads. Copies from and to an accelerator run on a separate stream, after the
// work that had been issued when the TransferStream was made.
#ifndef FSDP_CHECKPOINT_STATE_TENSOR_IO_H_
#define FSDP_CHECKPOINT_STATE_TENSOR_IO_H_

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/load/tensor_sink.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/tensor/dtype.h"

namespace fsdp {

// The DType for `type`; InvalidArgument for types that checkpoints do not hold,
// such as quantized ones.
absl::StatusOr<dcp::DType> ToDType(at::ScalarType type);

// OK when `tensor` has elements in memory that can be copied: InvalidArgument
// for undefined, sparse and meta tensors.
absl::Status CheckHasMemory(const at::Tensor& tensor);

// The elements' bytes in row-major order, flat: an alias if they lie so.
at::Tensor RowMajorBytes(const at::Tensor& tensor);

// The stream for one save's or load's copies from or to one device.
class TransferStream {
 public:
  // Records the current position in `device`'s stream. Not for the CPU.
  static absl::StatusOr<std::shared_ptr<TransferStream>> Make(
      c10::Device device);

  // The stream for copies; it waits for the recorded position.
  c10::Stream Begin();
  // Blocks until everything issued on the stream is done.
  void Synchronize();

 private:
  TransferStream(c10::Stream stream, c10::Event event)
      : stream_(stream), event_(std::move(event)) {}

  c10::Stream stream_;
  c10::Event event_;
  bool waits_ = false;
};

// One TransferStream for each device, shared by the tensors on it.
class TransferStreams {
 public:
  // Null for the CPU.
  absl::StatusOr<std::shared_ptr<TransferStream>> For(c10::Device device);

 private:
  std::vector<std::pair<c10::Device, std::shared_ptr<TransferStream>>> streams_;
};

class TorchTensorSource final : public dcp::TensorSource {
 public:
  // `tensor` may have any strides; it is aliased and kept alive. `stream` is
  // the device's, null on the CPU; owners: the sources and sinks of one
  // transfer. A tensor that is not contiguous is first copied on the
  // accelerator.
  TorchTensorSource(const at::Tensor& tensor,
                    std::shared_ptr<TransferStream> stream);

  absl::Status Fill(uint64_t offset, dcp::MutableByteSpan dst) override;
  absl::Status Flush() override;

  // The memory that is read.
  const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
  const std::shared_ptr<TransferStream> stream_;
};

class TorchTensorSink final : public dcp::TensorSink {
 public:
  // As TorchTensorSource. Elements of `tensor` do not overlap. Waits for a
  // background save that still copies it.
  TorchTensorSink(const at::Tensor& tensor,
                  std::shared_ptr<TransferStream> stream);

  // Not empty if the tensor is contiguous on the CPU.
  dcp::MutableByteSpan DirectSpan() override;
  absl::Status Place(uint64_t offset, dcp::ByteSpan src) override;
  // For a tensor on an accelerator that is not contiguous, the last Flush also
  // scatters the collected elements.
  absl::Status Flush() override;

 private:
  at::Tensor tensor_;
  at::Tensor collected_;  // a contiguous copy, if one is needed
  const std::shared_ptr<TransferStream> stream_;
  uint64_t num_missing_bytes_;
};

// Memory for staging: pinned if the process has an accelerator, else ordinary.
// Lives as long as the process; any thread.
std::pmr::memory_resource* StagingMemory();

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_TENSOR_IO_H_
