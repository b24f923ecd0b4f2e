// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/tensor_io.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/Context.h"
#include "ATen/DeviceAccelerator.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/from_blob.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "c10/core/Allocator.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/base/streaming_copy.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/lazy/shard_use.h"

namespace fsdp {
namespace {

// A contiguous tensor's memory as flat bytes.
at::Tensor FlatBytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

at::Tensor Wrap(const uint8_t* data, uint64_t size) {
  // from_blob takes no const; a source's bytes are only read.
  return at::from_blob(const_cast<uint8_t*>(data), {static_cast<int64_t>(size)},
                       at::kByte);
}

// Calls `copy(memory, position, length)` for the pieces of memory that hold
// bytes [offset, offset + size) of a CPU tensor's row-major image, in order;
// `position` counts from `offset`.
template <typename Copy>
void ForEachPiece(const at::Tensor& tensor, uint64_t offset, uint64_t size,
                  Copy copy) {
  if (size == 0) return;
  auto* const base = static_cast<uint8_t*>(tensor.data_ptr());
  if (tensor.is_contiguous()) {
    copy(base + offset, uint64_t{0}, size);
    return;
  }
  const int64_t element = static_cast<int64_t>(tensor.element_size());
  // Leaves out trailing dimensions with elements that lie in one run.
  int64_t num_outer = tensor.dim();
  int64_t run = 1;
  while (num_outer > 0 && (tensor.stride(num_outer - 1) == run ||
                           tensor.size(num_outer - 1) == 1)) {
    run *= tensor.size(--num_outer);
  }
  const uint64_t run_bytes = static_cast<uint64_t>(run * element);
  // The index of the run that contains `offset`.
  absl::InlinedVector<int64_t, 4> index(static_cast<size_t>(num_outer));
  int64_t address = 0;  // where the run begins, in elements
  uint64_t rest = offset / run_bytes;
  for (int64_t d = num_outer - 1; d >= 0; --d) {
    const auto extent = static_cast<uint64_t>(tensor.size(d));
    index[static_cast<size_t>(d)] = static_cast<int64_t>(rest % extent);
    address += index[static_cast<size_t>(d)] * tensor.stride(d);
    rest /= extent;
  }
  uint64_t skip = offset % run_bytes;
  for (uint64_t position = 0; position < size;) {
    const uint64_t length = std::min(run_bytes - skip, size - position);
    copy(base + address * element + skip, position, length);
    position += length;
    skip = 0;
    for (int64_t d = num_outer - 1; d >= 0; --d) {
      int64_t& i = index[static_cast<size_t>(d)];
      address += tensor.stride(d);
      if (++i < tensor.size(d)) break;
      address -= i * tensor.stride(d);
      i = 0;
    }
  }
}

// The allocator frees pinned memory by the address that it returned. That may
// be less aligned than requested.
class PinnedMemory final : public std::pmr::memory_resource {
 public:
  explicit PinnedMemory(c10::Allocator* allocator) : allocator_(allocator) {}

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    c10::DataPtr owner = allocator_->allocate(bytes + alignment);
    auto* const memory = reinterpret_cast<void*>(
        dcp::AlignUp(reinterpret_cast<uintptr_t>(owner.get()), alignment));
    absl::MutexLock lock(&mutex_);
    owners_.emplace(memory, std::move(owner));
    return memory;
  }

  void do_deallocate(void* memory, size_t, size_t) override {
    absl::MutexLock lock(&mutex_);
    owners_.erase(memory);
  }

  bool do_is_equal(
      const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  c10::Allocator* const allocator_;
  absl::Mutex mutex_;
  absl::flat_hash_map<void*, c10::DataPtr> owners_ ABSL_GUARDED_BY(mutex_);
};

std::pmr::memory_resource* NewStagingMemory() {
  // Checks for a device, because a build for GPUs also runs without one.
  if (at::getAccelerator(/*checked=*/false).has_value() &&
      at::accelerator::deviceCount() > 0) {
    return new PinnedMemory(at::globalContext().getPinnedMemoryAllocator());
  }
  return std::pmr::new_delete_resource();
}

}  // namespace

absl::StatusOr<dcp::DType> ToDType(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return dcp::DType::kFloat64;
    case at::kFloat:
      return dcp::DType::kFloat32;
    case at::kHalf:
      return dcp::DType::kFloat16;
    case at::kBFloat16:
      return dcp::DType::kBFloat16;
    case at::kFloat8_e4m3fn:
      return dcp::DType::kFloat8E4M3FN;
    case at::kFloat8_e5m2:
      return dcp::DType::kFloat8E5M2;
    case at::kFloat8_e4m3fnuz:
      return dcp::DType::kFloat8E4M3FNUZ;
    case at::kFloat8_e5m2fnuz:
      return dcp::DType::kFloat8E5M2FNUZ;
    case at::kFloat8_e8m0fnu:
      return dcp::DType::kFloat8E8M0FNU;
    case at::kFloat4_e2m1fn_x2:
      return dcp::DType::kFloat4E2M1FNX2;
    case at::kLong:
      return dcp::DType::kInt64;
    case at::kInt:
      return dcp::DType::kInt32;
    case at::kShort:
      return dcp::DType::kInt16;
    case at::kChar:
      return dcp::DType::kInt8;
    case at::kUInt64:
      return dcp::DType::kUInt64;
    case at::kUInt32:
      return dcp::DType::kUInt32;
    case at::kUInt16:
      return dcp::DType::kUInt16;
    case at::kByte:
      return dcp::DType::kUInt8;
    case at::kBool:
      return dcp::DType::kBool;
    case at::kComplexHalf:
      return dcp::DType::kComplex32;
    case at::kComplexFloat:
      return dcp::DType::kComplex64;
    case at::kComplexDouble:
      return dcp::DType::kComplex128;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "tensors of type ", c10::toString(type), " cannot be stored"));
  }
}

absl::Status CheckHasMemory(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return absl::InvalidArgumentError("the tensor is undefined");
  }
  if (tensor.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        "the tensor is sparse; only dense tensors can be stored");
  }
  if (tensor.device().is_meta()) {
    return absl::InvalidArgumentError(
        "the tensor is on the meta device; give it memory first, as "
        "fsdp::to_empty does");
  }
  return absl::OkStatus();
}

at::Tensor RowMajorBytes(const at::Tensor& tensor) {
  return FlatBytes(tensor.detach().resolve_conj().resolve_neg().contiguous());
}

absl::StatusOr<std::shared_ptr<TransferStream>> TransferStream::Make(
    c10::Device device) {
  return CatchTorch([&] {
    const c10::impl::VirtualGuardImpl impl(device.type());
    c10::Event event(device.type());
    event.record(impl.getStream(device));
    return std::shared_ptr<TransferStream>(new TransferStream(
        impl.getStreamFromGlobalPool(device), std::move(event)));
  });
}

c10::Stream TransferStream::Begin() {
  if (!waits_) event_.block(stream_);
  waits_ = true;
  return stream_;
}

void TransferStream::Synchronize() { stream_.synchronize(); }

absl::StatusOr<std::shared_ptr<TransferStream>> TransferStreams::For(
    c10::Device device) {
  if (device.is_cpu()) return std::shared_ptr<TransferStream>();
  for (const auto& [of_device, stream] : streams_) {
    if (of_device == device) return stream;
  }
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<TransferStream> stream,
                       TransferStream::Make(device));
  streams_.emplace_back(device, stream);
  return stream;
}

TorchTensorSource::TorchTensorSource(const at::Tensor& tensor,
                                     std::shared_ptr<TransferStream> stream)
    : tensor_(tensor.detach().resolve_conj().resolve_neg()),
      stream_(std::move(stream)) {}

absl::Status TorchTensorSource::Fill(uint64_t offset,
                                     dcp::MutableByteSpan dst) {
  if (!stream_) {
    ForEachPiece(
        tensor_, offset, dst.size(),
        [&](const uint8_t* memory, uint64_t position, uint64_t length) {
          dcp::StreamingCopy(dst.data() + position, memory, length);
        });
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    const c10::StreamGuard on_stream(stream_->Begin());
    if (!tensor_.is_contiguous()) tensor_ = tensor_.contiguous();
    Wrap(dst.data(), dst.size())
        .copy_(FlatBytes(tensor_).narrow(0, static_cast<int64_t>(offset),
                                         static_cast<int64_t>(dst.size())),
               /*non_blocking=*/true);
  });
}

absl::Status TorchTensorSource::Flush() {
  if (!stream_) return absl::OkStatus();
  return CatchTorch([&] { stream_->Synchronize(); });
}

TorchTensorSink::TorchTensorSink(const at::Tensor& tensor,
                                 std::shared_ptr<TransferStream> stream)
    : tensor_(tensor.detach()),
      stream_(std::move(stream)),
      num_missing_bytes_(tensor.nbytes()) {
  NoteShardWrite(tensor);
}

dcp::MutableByteSpan TorchTensorSink::DirectSpan() {
  if (stream_ || !tensor_.is_contiguous()) return {};
  return {static_cast<uint8_t*>(tensor_.data_ptr()), tensor_.nbytes()};
}

absl::Status TorchTensorSink::Place(uint64_t offset, dcp::ByteSpan src) {
  num_missing_bytes_ -= src.size();
  if (!stream_) {
    ForEachPiece(tensor_, offset, src.size(),
                 [&](uint8_t* memory, uint64_t position, uint64_t length) {
                   std::memcpy(memory, src.data() + position, length);
                 });
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    const c10::StreamGuard on_stream(stream_->Begin());
    if (!tensor_.is_contiguous() && !collected_.defined()) {
      collected_ = at::empty_like(tensor_, at::MemoryFormat::Contiguous);
    }
    const at::Tensor& dst = collected_.defined() ? collected_ : tensor_;
    FlatBytes(dst)
        .narrow(0, static_cast<int64_t>(offset),
                static_cast<int64_t>(src.size()))
        .copy_(Wrap(src.data(), src.size()), /*non_blocking=*/true);
  });
}

absl::Status TorchTensorSink::Flush() {
  if (!stream_) return absl::OkStatus();
  return CatchTorch([&] {
    if (collected_.defined() && num_missing_bytes_ == 0) {
      const c10::StreamGuard on_stream(stream_->Begin());
      tensor_.copy_(collected_, /*non_blocking=*/true);
    }
    stream_->Synchronize();
    if (num_missing_bytes_ == 0) collected_.reset();
  });
}

std::pmr::memory_resource* StagingMemory() {
  static std::pmr::memory_resource* const memory = NewStagingMemory();
  return memory;
}

}  // namespace fsdp
