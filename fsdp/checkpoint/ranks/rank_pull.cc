// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/rank_pull.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"

namespace fsdp {
namespace {

// Bytes that rank 0 sends.
constexpr uint8_t kSend = 0;
constexpr uint8_t kStop = 1;

// The first byte of the other rank's messages.
constexpr uint8_t kPullWell = 0;
constexpr uint8_t kPullAbandoned = 1;

}  // namespace

RankPull::RankPull(ProcessGroupCoordinator& coordinator, int64_t src,
                   uint64_t num_bytes, uint64_t window_bytes)
    : coordinator_(coordinator),
      src_(src),
      num_unasked_(num_bytes),
      window_bytes_(window_bytes) {}

absl::Status RankPull::Command(uint8_t command) {
  DCP_ASSIGN_OR_RETURN(auto transfer,
                       coordinator_.Send(src_, dcp::ByteSpan(&command, 1)));
  return transfer.Wait();
}

absl::Status RankPull::Ask(Message& message) {
  const uint64_t length = std::min(window_bytes_, num_unasked_);
  if (length == 0) return absl::OkStatus();
  message.buffer.resize(1 + length);
  DCP_RETURN_IF_ERROR(Command(kSend));
  num_unasked_ -= length;
  DCP_ASSIGN_OR_RETURN(message.transfer,
                       coordinator_.Receive(src_, message.buffer));
  message.num_bytes = length;
  return absl::OkStatus();
}

absl::Status RankPull::Read(dcp::MutableByteSpan dst) {
  while (!dst.empty()) {
    Message& message = messages_[current_];
    if (!arrived_) {
      if (message.num_bytes == 0) DCP_RETURN_IF_ERROR(Ask(message));
      DCP_CHECK(message.num_bytes > 0, "nothing is left to read from rank ",
                src_);
      DCP_RETURN_IF_ERROR(message.transfer.Wait());
      if (message.buffer[0] == kPullAbandoned) {
        over_ = true;
        return absl::AbortedError(absl::StrCat(
            "rank ", src_, " gave up sending; its own error says why"));
      }
      arrived_ = true;
      position_ = 0;
      DCP_RETURN_IF_ERROR(Ask(messages_[1 - current_]));
    }
    const uint64_t length =
        std::min<uint64_t>(dst.size(), message.num_bytes - position_);
    std::memcpy(dst.data(), message.buffer.data() + 1 + position_, length);
    position_ += length;
    dst = dst.subspan(length);
    if (position_ == message.num_bytes) {
      message.num_bytes = 0;
      arrived_ = false;
      current_ = 1 - current_;
    }
  }
  return absl::OkStatus();
}

void RankPull::Stop() {
  if (over_) return;
  over_ = true;
  absl::Status status;
  bool abandoned = false;
  for (Message& message : messages_) {
    if (message.num_bytes == 0 ||
        (arrived_ && &message == &messages_[current_])) {
      continue;
    }
    status.Update(message.transfer.Wait());
    abandoned = abandoned || message.buffer[0] == kPullAbandoned;
  }
  if (num_unasked_ > 0 && !abandoned) status.Update(Command(kStop));
  // A rank that is gone needs no message.
  status.IgnoreError();
}

absl::Status ServeRankPull(
    ProcessGroupCoordinator& coordinator, uint64_t num_bytes,
    uint64_t window_bytes,
    absl::FunctionRef<absl::Status(dcp::MutableByteSpan)> fill) {
  std::vector<uint8_t> buffer(1 + std::min(window_bytes, num_bytes));
  while (num_bytes > 0) {
    uint8_t command = kStop;
    DCP_ASSIGN_OR_RETURN(
        auto asked, coordinator.Receive(0, dcp::MutableByteSpan(&command, 1)));
    DCP_RETURN_IF_ERROR(asked.Wait());
    if (command != kSend) return absl::AbortedError("rank 0 gave up writing");
    const uint64_t length = std::min(window_bytes, num_bytes);
    const absl::Status filled =
        fill(dcp::MutableByteSpan(buffer.data() + 1, length));
    buffer[0] = filled.ok() ? kPullWell : kPullAbandoned;
    DCP_ASSIGN_OR_RETURN(
        auto sent,
        coordinator.Send(0, dcp::ByteSpan(buffer.data(), 1 + length)));
    DCP_RETURN_IF_ERROR(sent.Wait());
    DCP_RETURN_IF_ERROR(filled);
    num_bytes -= length;
  }
  return absl::OkStatus();
}

}  // namespace fsdp
