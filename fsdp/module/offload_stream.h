// SPDX-License-Identifier: Apache-2.0
// OffloadStream: copies one device's saved tensors to CPU memory and back on a
// separate stream, next to the computation, without making the host wait.
// ActivationOffload decides which tensors; see offload_stream.cc for the steps.
// Safe for any threads: forward makes parcels, autograd's threads unpack them,
// and the thread that frees the graph ends them.
//
// The CPU has no streams; there each copy is made at once.
#ifndef FSDP_MODULE_OFFLOAD_STREAM_H_
#define FSDP_MODULE_OFFLOAD_STREAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/util/ArrayRef.h"

namespace fsdp {

class OffloadStream {
 public:
  class Parcel;

  // How much ActivationOffload copies at a time.
  static constexpr uint64_t kWindowBytes = uint64_t{256} << 20;

  // At most `window_bytes` of tensors stay on the device while they are copied
  // to the CPU, and at most as many bytes are fetched ahead.
  OffloadStream(c10::Device device, uint64_t window_bytes);
  OffloadStream(const OffloadStream&) = delete;
  OffloadStream& operator=(const OffloadStream&) = delete;

  // The stream for `device` with ActivationOffload's window; never destroyed.
  static OffloadStream& ForDevice(c10::Device device);

  // The device memory, in bytes, that packed tensors and tensors fetched ahead
  // keep from being freed. A view counts with the whole storage.
  uint64_t held_bytes() const;
  uint64_t fetched_bytes() const;

 private:
  using EventPtr = std::unique_ptr<c10::Event>;

  std::optional<c10::Stream> Current() const;
  // Copies on this stream, after all work that the current stream has been
  // given so far. Returns the event at the copy's end; null without streams.
  EventPtr Copy(const at::Tensor& dst, const at::Tensor& src) const;

  // The caller holds the mutex.
  void MakeRoom(uint64_t num_bytes);
  void DropFetched();
  void FetchBefore(const Parcel& parcel);

  const c10::Device device_;
  const uint64_t window_bytes_;
  std::optional<c10::Stream> stream_;

  // Held while copies are issued, which neither waits nor calls back.
  mutable std::mutex mutex_;
  uint64_t next_number_ = 0;
  // In the order of packing.
  std::map<uint64_t, Parcel*> parcels_;
  std::map<uint64_t, Parcel*> held_;
  std::map<uint64_t, Parcel*> fetched_;
  uint64_t held_bytes_ = 0;
  uint64_t fetched_bytes_ = 0;
};

// A packed tensor. The parcel's end frees all the memory.
class OffloadStream::Parcel {
 public:
  // Packs `tensor`, which is strided and on the device of `offload`.
  Parcel(OffloadStream& offload, const at::Tensor& tensor);
  ~Parcel();
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  // The tensor on the device, for work on the current stream; not to be written
  // into. May be called several times. Throws c10::Error if the tensor was
  // modified while it was held, because that may have changed the copy.
  at::Tensor Unpack();

 private:
  friend class OffloadStream;

  // The caller holds the mutex.
  void EndHold();
  void FreeSource();
  at::Tensor Fetch();
  at::Tensor TakeFetched();
  uint64_t held_bytes() const { return source_.storage().nbytes(); }

  OffloadStream& offload_;
  uint64_t number_ = 0;
  // The stream that computed the tensor. Autograd uses it in backward too.
  const std::optional<c10::Stream> compute_;
  at::Tensor source_;  // undefined once it is no longer held
  const int64_t packed_version_;
  int64_t last_version_;  // when the hold ended
  at::Tensor kept_;       // in CPU memory
  // It was unpacked, so it is not fetched ahead: it usually ends soon.
  bool is_used_ = false;
  at::Tensor fetched_;  // before it is used; else undefined
  EventPtr copied_;     // the last copy, in either direction
};

// Throws c10::Error if a tensor that was saved at one version is at another.
// LibTorch makes the same check for tensors that it saves without hooks.
void CheckNotModified(at::IntArrayRef sizes, int64_t saved_version,
                      int64_t version);

}  // namespace fsdp

#endif  // FSDP_MODULE_OFFLOAD_STREAM_H_
