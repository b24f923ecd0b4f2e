// The memory of tensors as what a save copies from and a load copies to, on
// the CPU or an accelerator. Made by the thread that trains, used by the lane
// that saves or loads. Copies of an accelerator run on a stream of their own,
// behind the work that was issued when the TransferStream was made.
#ifndef DCP_TORCH_TENSOR_IO_H_
#define DCP_TORCH_TENSOR_IO_H_

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
#include "dcp/checkpoint/tensor_sink.h"
#include "dcp/checkpoint/tensor_source.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The type's counterpart; InvalidArgument for quantized types and others that
// checkpoints do not hold.
absl::StatusOr<DType> DTypeOf(at::ScalarType type);

// OK when `tensor` has elements in memory that can be copied: InvalidArgument
// for undefined, sparse and meta tensors.
absl::Status CheckHasMemory(const at::Tensor& tensor);

// The copies of one save or load with one device.
class TransferStream {
 public:
  // Records where the current stream of `device`, not a CPU, is now.
  static absl::StatusOr<std::shared_ptr<TransferStream>> Make(
      c10::Device device);

  // The stream of the copies; it has been told to wait for what was recorded.
  c10::Stream Begin();
  // Blocks until what was issued on it is done.
  void Synchronize();

 private:
  TransferStream(c10::Stream stream, c10::Event event)
      : stream_(stream), event_(std::move(event)) {}

  c10::Stream stream_;
  c10::Event event_;
  bool waits_ = false;
};

// One for each device that is asked for, shared by the tensors there.
class TransferStreams {
 public:
  // Null for the CPU.
  absl::StatusOr<std::shared_ptr<TransferStream>> For(c10::Device device);

 private:
  std::vector<std::pair<c10::Device, std::shared_ptr<TransferStream>>> streams_;
};

class TorchTensorSource final : public TensorSource {
 public:
  // Any strides; aliased, and kept alive. `stream` is of the tensor's device,
  // null on the CPU; its owners are the sources and sinks of one transfer. A
  // tensor on an accelerator that is not contiguous is copied there first.
  TorchTensorSource(const at::Tensor& tensor,
                    std::shared_ptr<TransferStream> stream);

  absl::Status Fill(uint64_t offset, MutableByteSpan dst) override;
  absl::Status Flush() override;

 private:
  at::Tensor tensor_;
  const std::shared_ptr<TransferStream> stream_;
};

class TorchTensorSink final : public TensorSink {
 public:
  // As TorchTensorSource. The elements of `tensor` do not overlap.
  TorchTensorSink(const at::Tensor& tensor,
                  std::shared_ptr<TransferStream> stream);

  // On the CPU, where the tensor is contiguous.
  MutableByteSpan DirectSpan() override;
  absl::Status Place(uint64_t offset, ByteSpan src) override;
  // The last Flush also scatters what was collected for a tensor on an
  // accelerator that is not contiguous.
  absl::Status Flush() override;

 private:
  at::Tensor tensor_;
  at::Tensor collected_;  // a contiguous copy, while one is needed
  const std::shared_ptr<TransferStream> stream_;
  uint64_t num_missing_bytes_;
};

// Memory for staging: pinned where the process has an accelerator, ordinary
// otherwise. Lives as long as the process; any thread.
std::pmr::memory_resource* StagingMemory();

}  // namespace dcp

#endif  // DCP_TORCH_TENSOR_IO_H_
