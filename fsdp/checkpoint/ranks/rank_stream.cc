#include "fsdp/checkpoint/ranks/rank_stream.h"

#include <algorithm>
#include <cstring>

#include "dcp/base/check.h"
#include "dcp/base/status.h"

namespace fsdp {
namespace {

constexpr uint8_t kWell = 0;
constexpr uint8_t kAbandoned = 1;

}  // namespace

RankStreamWriter::RankStreamWriter(ProcessGroupCoordinator& coordinator,
                                   int64_t dst, uint64_t num_bytes,
                                   uint64_t window_bytes)
    : coordinator_(coordinator),
      dst_(dst),
      num_left_(num_bytes),
      window_bytes_(window_bytes) {
  const uint64_t size = 1 + std::min(window_bytes, num_bytes);
  for (std::vector<uint8_t>& buffer : buffers_) buffer.resize(size);
}

absl::Status RankStreamWriter::Write(dcp::ByteSpan bytes) {
  while (!bytes.empty()) {
    DCP_CHECK(num_filled_ < num_left_, "more than the ", num_left_,
              " bytes that are left");
    const uint64_t length = std::min<uint64_t>(
        bytes.size(), std::min(window_bytes_, num_left_) - num_filled_);
    std::memcpy(buffers_[current_].data() + 1 + num_filled_, bytes.data(),
                length);
    num_filled_ += length;
    bytes = bytes.subspan(length);
    if (num_filled_ == std::min(window_bytes_, num_left_)) {
      DCP_RETURN_IF_ERROR(SendMessage(/*is_well=*/true));
    }
  }
  return absl::OkStatus();
}

absl::Status RankStreamWriter::SendMessage(bool is_well) {
  std::vector<uint8_t>& buffer = buffers_[current_];
  const uint64_t length = std::min(window_bytes_, num_left_);
  buffer[0] = is_well ? kWell : kAbandoned;
  DCP_ASSIGN_OR_RETURN(
      transfers_[current_],
      coordinator_.Send(dst_, dcp::ByteSpan(buffer.data(), 1 + length)));
  num_left_ -= length;
  num_filled_ = 0;
  current_ = 1 - current_;
  // The next bytes go to the buffer that still holds the message before this
  // one.
  return transfers_[current_].Wait();
}

absl::Status RankStreamWriter::Finish() {
  DCP_CHECK(num_left_ == 0, num_left_, " bytes are missing");
  absl::Status status = transfers_[0].Wait();
  status.Update(transfers_[1].Wait());
  return status;
}

void RankStreamWriter::Abandon() {
  absl::Status status;
  if (num_left_ > 0) status = SendMessage(/*is_well=*/false);
  status.Update(transfers_[0].Wait());
  status.Update(transfers_[1].Wait());
  // A reader that is gone need not be told.
  status.IgnoreError();
}

absl::Status ReadRankStream(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes,
    absl::FunctionRef<absl::Status(dcp::ByteSpan)> take) {
  std::array<std::vector<uint8_t>, 2> buffers;
  std::array<ProcessGroupCoordinator::Transfer, 2> transfers;
  for (std::vector<uint8_t>& buffer : buffers) {
    buffer.resize(1 + std::min(window_bytes, num_bytes));
  }
  const auto length_at = [&](uint64_t begin) {
    return begin < num_bytes ? std::min(window_bytes, num_bytes - begin) : 0;
  };
  const auto receive = [&](size_t slot, uint64_t begin) -> absl::Status {
    if (length_at(begin) == 0) return absl::OkStatus();
    DCP_ASSIGN_OR_RETURN(
        transfers[slot],
        coordinator.Receive(0, dcp::MutableByteSpan(buffers[slot].data(),
                                                    1 + length_at(begin))));
    return absl::OkStatus();
  };
  absl::Status taken;
  size_t slot = 0;
  DCP_RETURN_IF_ERROR(receive(slot, 0));
  for (uint64_t begin = 0; begin < num_bytes; begin += length_at(begin)) {
    // Requests the next message only after this one has arrived, because none
    // follows one from a rank that gave up.
    DCP_RETURN_IF_ERROR(transfers[slot].Wait());
    if (buffers[slot][0] == kAbandoned) {
      return absl::AbortedError("rank 0 gave up reading");
    }
    const size_t other = 1 - slot;
    DCP_RETURN_IF_ERROR(receive(other, begin + length_at(begin)));
    if (taken.ok()) {
      taken = take(dcp::ByteSpan(buffers[slot].data() + 1, length_at(begin)));
    }
    slot = other;
  }
  return taken;
}

}  // namespace fsdp
