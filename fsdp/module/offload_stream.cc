// SPDX-License-Identifier: Apache-2.0
// A tensor's way, on a device with streams. The compute stream is the current
// stream when forward packs and backward unpacks.
//   1. A new parcel's tensor is copied to pinned memory, on the offload stream,
//      after all work that the compute stream has been given so far. The parcel
//      holds the tensor: if it were freed, the compute stream could reuse the
//      memory at once, while the copy still reads it.
//   2. When the held tensors exceed the window, the compute stream waits for
//      the oldest copy, and that tensor is freed.
//   3. Unpacking returns a tensor that is still held as it is. Another tensor
//      has usually been fetched ahead; if not, it is fetched now. The memory is
//      allocated for the compute stream, because it is used and freed there.
//      Earlier work on the compute stream may still use this memory, so the
//      offload stream waits for that work before it copies; and the compute
//      stream waits for the copy.
//   4. Then the tensors packed just before it, which backward needs next, are
//      fetched ahead, until they fill the window.
// The host only issues this. It never asks whether an event has happened, so
// the same memory is in use at the same point in every step. Pinned memory may
// be freed while a copy still uses it: the allocator waits for the copies that
// copy_ has issued before it reuses the memory.
#include "fsdp/module/offload_stream.h"

#include <unordered_map>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/empty_strided.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"

namespace fsdp {
namespace {

// How many parcels one unpacking looks at, to fetch them ahead. This bounds the
// cost on the host, where thousands of small tensors fit the window.
constexpr int kMaxAhead = 64;

// Has the layout of `tensor` if that is dense, so that one memory copy fills
// it; elements in other layouts may overlap.
at::Tensor EmptyOnCpu(const at::Tensor& tensor, bool is_pinned) {
  const at::TensorOptions options =
      tensor.options().device(c10::kCPU).pinned_memory(is_pinned);
  return tensor.is_non_overlapping_and_dense()
             ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
             : at::empty(tensor.sizes(), options);
}

void Wait(const std::optional<c10::Stream>& stream,
          const std::unique_ptr<c10::Event>& event) {
  if (event) event->block(*stream);
}

}  // namespace

OffloadStream::OffloadStream(c10::Device device, uint64_t window_bytes)
    : device_(device), window_bytes_(window_bytes) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type())
                .getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

OffloadStream& OffloadStream::ForDevice(c10::Device device) {
  using Streams =
      std::unordered_map<c10::Device, std::unique_ptr<OffloadStream>>;
  static auto* const mutex = new std::mutex;
  static auto* const streams = new Streams;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<OffloadStream>& stream = (*streams)[device];
  if (!stream) {
    stream = std::make_unique<OffloadStream>(device, kWindowBytes);
  }
  return *stream;
}

uint64_t OffloadStream::held_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_bytes_;
}

uint64_t OffloadStream::fetched_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fetched_bytes_;
}

std::optional<c10::Stream> OffloadStream::Current() const {
  if (!stream_.has_value()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

OffloadStream::EventPtr OffloadStream::Copy(const at::Tensor& dst,
                                            const at::Tensor& src) const {
  if (!stream_.has_value()) {
    dst.copy_(src);
    return nullptr;
  }
  c10::Event issued(device_.type());
  issued.record(*Current());
  issued.block(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  // The CPU would resolve a lazy conjugate or negation right after a copy has
  // been issued, before it is made.
  dst.copy_(src.resolve_conj().resolve_neg(), /*non_blocking=*/true);
  auto copied = std::make_unique<c10::Event>(device_.type());
  copied->record(*stream_);
  return copied;
}

// Frees the oldest held tensors, so that another with `num_bytes` fits.
void OffloadStream::MakeRoom(uint64_t num_bytes) {
  while (!held_.empty() && held_bytes_ + num_bytes > window_bytes_) {
    held_.begin()->second->EndHold();
  }
}

void OffloadStream::DropFetched() {
  while (!fetched_.empty()) {
    Parcel& parcel = *fetched_.begin()->second;
    const at::Tensor unused = parcel.TakeFetched();
    Wait(parcel.compute_, parcel.copied_);
  }
}

void OffloadStream::FetchBefore(const Parcel& parcel) {
  auto next = parcels_.find(parcel.number_);
  for (int i = 0; i < kMaxAhead && next != parcels_.begin(); ++i) {
    Parcel& ahead = *(--next)->second;
    if (ahead.is_used_ || ahead.source_.defined() || ahead.fetched_.defined() ||
        ahead.compute_ != parcel.compute_) {
      continue;
    }
    if (fetched_bytes_ + ahead.kept_.nbytes() > window_bytes_) return;
    ahead.fetched_ = ahead.Fetch();
    fetched_.emplace(ahead.number_, &ahead);
    fetched_bytes_ += ahead.kept_.nbytes();
  }
}

OffloadStream::Parcel::Parcel(OffloadStream& offload, const at::Tensor& tensor)
    : offload_(offload),
      compute_(offload.Current()),
      // Without the graph, which may own this parcel.
      source_(tensor.tensor_data()),
      packed_version_(tensor._version()),
      last_version_(packed_version_),
      kept_(EmptyOnCpu(tensor, /*is_pinned=*/offload.stream_.has_value())),
      copied_(offload.Copy(kept_, source_)) {
  const std::lock_guard<std::mutex> lock(offload_.mutex_);
  number_ = offload_.next_number_++;
  // While forward runs, nothing needs to be ready for backward. A tensor that
  // an earlier backward fetched but did not use may never be used.
  offload_.DropFetched();
  offload_.MakeRoom(held_bytes());
  const bool is_held = held_bytes() <= offload_.window_bytes_;
  if (!is_held) FreeSource();
  offload_.parcels_.emplace(number_, this);
  if (!is_held) return;
  offload_.held_.emplace(number_, this);
  offload_.held_bytes_ += held_bytes();
}

OffloadStream::Parcel::~Parcel() {
  // Streams fail only after an operator has failed, and that error is known.
  CatchErrorText([this] {
    const std::lock_guard<std::mutex> lock(offload_.mutex_);
    offload_.parcels_.erase(number_);
    if (source_.defined()) EndHold();
    if (!fetched_.defined()) return;
    const at::Tensor unused = TakeFetched();
    Wait(compute_, copied_);
  });
}

void OffloadStream::Parcel::EndHold() {
  offload_.held_.erase(number_);
  offload_.held_bytes_ -= held_bytes();
  FreeSource();
}

void OffloadStream::Parcel::FreeSource() {
  last_version_ = source_._version();
  const at::Tensor source = std::exchange(source_, at::Tensor());
  Wait(compute_, copied_);
}

// Issues the copy to the device, for work on the current stream.
at::Tensor OffloadStream::Parcel::Fetch() {
  const at::Tensor tensor = at::empty_strided(
      kept_.sizes(), kept_.strides(), kept_.options().device(offload_.device_));
  copied_ = offload_.Copy(tensor, kept_);
  return tensor;
}

at::Tensor OffloadStream::Parcel::TakeFetched() {
  offload_.fetched_.erase(number_);
  offload_.fetched_bytes_ -= kept_.nbytes();
  return std::exchange(fetched_, at::Tensor());
}

at::Tensor OffloadStream::Parcel::Unpack() {
  const std::lock_guard<std::mutex> lock(offload_.mutex_);
  CheckNotModified(kept_.sizes(), packed_version_,
                   source_.defined() ? source_._version() : last_version_);
  is_used_ = true;
  const std::optional<c10::Stream> current = offload_.Current();
  at::Tensor tensor = source_;
  if (!tensor.defined()) {
    // Tensors fetched ahead have memory from the compute stream.
    const bool is_ready = fetched_.defined() && current == compute_;
    tensor = is_ready ? TakeFetched() : Fetch();
    Wait(current, copied_);
  }
  if (current == compute_) offload_.FetchBefore(*this);
  return tensor;
}

void CheckNotModified(at::IntArrayRef sizes, int64_t saved_version,
                      int64_t version) {
  TORCH_CHECK(version == saved_version, "fsdp: a tensor of sizes ", sizes,
              " that forward saved for backward was modified in place: it is "
              "at version ",
              version, ", and was at version ", saved_version);
}

}  // namespace fsdp
