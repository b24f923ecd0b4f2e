// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/source/daemon_reader.h"

#include <algorithm>
#include <array>

#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "dcp/base/thread.h"
#include "dcp/tensor/dtype.h"

namespace fsdp {
namespace {

// A daemon accepts requests of up to 4 MiB unless the operator configured
// another limit.
constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 20;

// A smaller window spends most time on round trips.
constexpr uint64_t kMinRequestWindowBytes = uint64_t{1} << 20;

tessera::v1::ReadTensorsRequest::Part MakeRequestPart(
    const dcp::LoadTensor& tensor, const dcp::Box& box) {
  tessera::v1::ReadTensorsRequest::Part part;
  part.set_name(tensor.fqn);
  part.set_dtype(std::string(dcp::TorchName(tensor.dtype)));
  for (const int64_t size : tensor.shape) part.add_expected_shape(size);
  tessera::v1::Box& wanted = *part.mutable_box();
  for (const int64_t offset : box.offsets) wanted.add_offsets(offset);
  for (const int64_t size : box.sizes) wanted.add_sizes(size);
  return part;
}

}  // namespace

dcp::Box NextRun(const dcp::Box& box, uint64_t first, uint64_t max_elements) {
  DCP_CHECK(max_elements > 0);
  dcp::Box run = box;
  uint64_t row = static_cast<uint64_t>(dcp::Volume(box.sizes));
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    // From here on, the unit is the elements at one index in this dimension.
    const auto size = static_cast<uint64_t>(box.sizes[d]);
    row /= size;
    const uint64_t index = first / row;
    first %= row;
    run.offsets[d] += static_cast<int64_t>(index);
    if (first == 0 && row <= max_elements) {
      run.sizes[d] =
          static_cast<int64_t>(std::min(max_elements / row, size - index));
      return run;
    }
    run.sizes[d] = 1;
  }
  return run;
}

// Two windows take half of the budget; messages that have arrived but are not
// copied yet take some of the rest.
DaemonReader::DaemonReader(dcp::client::CheckpointClient& client,
                           const tessera::v1::Source& source,
                           const std::string& etag,
                           absl::Span<const dcp::LoadTensor> tensors,
                           const CheckpointSource::ReadOptions& options)
    : client_(client),
      source_(source),
      etag_(etag),
      tensors_(tensors),
      options_(options),
      window_bytes_(
          std::max(options.memory_bytes / 4, kMinRequestWindowBytes)) {}

absl::Status DaemonReader::Run() {
  const std::stop_callback stop(options_.stop,
                                [this] { stop_.request_stop(); });
  std::array<Batch, 2> batches;
  Plan(batches[0]);
  DCP_RETURN_IF_ERROR(Receive(batches[0]));
  for (size_t i = 0; !batches[i % 2].parts.empty(); ++i) {
    Batch& next = batches[(i + 1) % 2];
    Plan(next);
    absl::Status received;
    absl::StatusOr<dcp::Thread> receiver =
        dcp::Thread::Start([&] { received = Receive(next); });
    const absl::Status placed = Place(batches[i % 2]);
    if (!placed.ok()) stop_.request_stop();
    // Without a thread, one comes after the other.
    if (receiver.ok()) {
      receiver->Join();
    } else {
      received = Receive(next);
    }
    DCP_RETURN_IF_ERROR(placed);
    DCP_RETURN_IF_ERROR(received);
  }
  return absl::OkStatus();
}

void DaemonReader::Plan(Batch& batch) {
  batch.parts.clear();
  batch.pieces.clear();
  uint64_t num_filled = 0;
  uint64_t request_bytes = 0;
  while (next_tensor_ < tensors_.size() && request_bytes < kMaxRequestBytes) {
    const dcp::LoadTensor& tensor = tensors_[next_tensor_];
    const uint64_t element = dcp::ElementSize(tensor.dtype);
    const uint64_t num_left =
        static_cast<uint64_t>(dcp::Volume(tensor.box.sizes)) - next_element_;
    if (num_left == 0) {
      ++next_tensor_;
      next_element_ = 0;
      continue;
    }
    dcp::Box box = tensor.box;
    dcp::MutableByteSpan memory = tensor.sink->DirectSpan();
    if (memory.empty()) {
      const uint64_t room = window_bytes_ - num_filled;
      // A small remainder of the window is not worth a separate part.
      if (num_left * element > room && room < window_bytes_ / 4) return;
      if (batch.window == nullptr) {
        batch.window = std::make_unique_for_overwrite<uint8_t[]>(window_bytes_);
      }
      box = NextRun(tensor.box, next_element_, room / element);
      memory = {batch.window.get() + num_filled,
                static_cast<uint64_t>(dcp::Volume(box.sizes)) * element};
      batch.pieces.push_back({tensor.sink, next_element_ * element, memory});
      num_filled += memory.size();
    }
    next_element_ += static_cast<uint64_t>(dcp::Volume(box.sizes));
    batch.parts.push_back({MakeRequestPart(tensor, box), memory});
    request_bytes += batch.parts.back().part.ByteSizeLong();
  }
}

absl::Status DaemonReader::Receive(const Batch& batch) {
  if (batch.parts.empty()) return absl::OkStatus();
  dcp::client::ReadTensorsOptions read;
  read.etag = etag_;
  read.call.stop = stop_.get_token();
  if (options_.stats != nullptr) {
    ++options_.stats->num_reads;
    read.bytes_arrived = &options_.stats->bytes_read;
  }
  return client_.ReadTensors(source_, batch.parts, read).status();
}

absl::Status DaemonReader::Place(const Batch& batch) {
  absl::Status status;
  size_t num_begun = 0;
  while (status.ok() && num_begun < batch.pieces.size()) {
    const Piece& piece = batch.pieces[num_begun++];
    status = piece.sink->Place(piece.offset, piece.bytes);
  }
  // The window is filled again after this, so nothing may still read it, even
  // after an error.
  for (size_t i = 0; i < num_begun; ++i) {
    status.Update(batch.pieces[i].sink->Flush());
  }
  return status;
}

}  // namespace fsdp
