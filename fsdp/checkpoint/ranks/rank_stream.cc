// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/rank_stream.h"

#include <algorithm>
#include <cstring>

#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace fsdp {
namespace {

// Smaller messages cost more in round trips than they save.
constexpr uint64_t kMinWindowBytes = uint64_t{64} << 10;
constexpr uint64_t kWindowAlignment = 16;

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
    DCP_CHECK(num_filled_ < num_left_, "the stream has only ", num_left_,
              " bytes left");
    const uint64_t length = std::min<uint64_t>(
        bytes.size(), std::min(window_bytes_, num_left_) - num_filled_);
    std::memcpy(buffers_[current_].data() + num_filled_, bytes.data(), length);
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
  buffer[length] = is_well ? kWell : kAbandoned;
  DCP_ASSIGN_OR_RETURN(
      transfers_[current_],
      coordinator_.Send(dst_, dcp::ByteSpan(buffer.data(), length + 1)));
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
  // A reader that is gone needs no message.
  status.IgnoreError();
}

RankStreams::RankStreams(ProcessGroupCoordinator& coordinator,
                         absl::Span<const uint64_t> num_bytes,
                         uint64_t window_bytes) {
  for (size_t rank = 1; rank < num_bytes.size(); ++rank) {
    writers_.push_back(std::make_unique<RankStreamWriter>(
        coordinator, static_cast<int64_t>(rank), num_bytes[rank],
        window_bytes));
  }
}

absl::Status RankStreams::End(absl::Status status) {
  for (const std::unique_ptr<RankStreamWriter>& writer : writers_) {
    if (status.ok()) {
      status = writer->Finish();
    } else {
      writer->Abandon();
    }
  }
  return status;
}

uint64_t StreamWindowBytes(uint64_t budget_bytes, int64_t num_ranks) {
  const auto num_streams =
      static_cast<uint64_t>(std::max<int64_t>(num_ranks - 1, 1));
  // Each stream has two messages.
  return dcp::AlignUp(std::clamp<uint64_t>(budget_bytes / 2 / num_streams,
                                           kMinWindowBytes, dcp::kBlockBytes),
                      kWindowAlignment);
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
                                                    length_at(begin) + 1)));
    return absl::OkStatus();
  };
  absl::Status taken;
  size_t slot = 0;
  DCP_RETURN_IF_ERROR(receive(slot, 0));
  for (uint64_t begin = 0; begin < num_bytes; begin += length_at(begin)) {
    // Requests the next message only after this one has arrived, because none
    // follows one from a rank that gave up.
    DCP_RETURN_IF_ERROR(transfers[slot].Wait());
    if (buffers[slot][length_at(begin)] == kAbandoned) {
      return absl::AbortedError("rank 0 gave up reading");
    }
    const size_t other = 1 - slot;
    DCP_RETURN_IF_ERROR(receive(other, begin + length_at(begin)));
    if (taken.ok()) {
      taken = take(dcp::ByteSpan(buffers[slot].data(), length_at(begin)));
    }
    slot = other;
  }
  return taken;
}

}  // namespace fsdp
