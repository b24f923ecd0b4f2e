// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_progress.h"

#include <algorithm>

#include "google/protobuf/util/time_util.h"

namespace dcp::server {
namespace {

// Nobody plans further ahead than this; longer times are noise of a rate near
// zero.
constexpr absl::Duration kMaxRemaining = absl::Hours(24 * 365);

}  // namespace

void JobProgress::Begin(uint64_t total_bytes, uint64_t kept_bytes,
                        absl::Duration now) {
  total_bytes_ = total_bytes;
  kept_bytes_ = kept_bytes;
  points_ = {{now, 0}};
}

void JobProgress::Sample(uint64_t num_bytes, absl::Duration now) {
  if (points_.empty()) return;
  if (now <= points_.back().time) {
    points_.back().num_bytes = num_bytes;
    return;
  }
  points_.push_back({now, num_bytes});
  if (points_.size() > kRateSamples + 1) points_.pop_front();
}

void JobProgress::Fill(uint64_t num_bytes,
                       tessera::v1::JobMetadata& metadata) const {
  metadata.set_bytes_total(total_bytes_);
  if (points_.empty()) return;
  // Gaps between the needed ranges are read too, so the sum may exceed the
  // total.
  const uint64_t done = std::min(total_bytes_, kept_bytes_ + num_bytes);
  metadata.set_bytes_done(done);
  const double seconds =
      absl::ToDoubleSeconds(points_.back().time - points_.front().time);
  if (seconds <= 0) return;
  const double rate = static_cast<double>(points_.back().num_bytes -
                                          points_.front().num_bytes) /
                      seconds;
  metadata.set_bytes_per_second(rate);
  if (rate <= 0) return;
  const absl::Duration remaining =
      absl::Seconds(static_cast<double>(total_bytes_ - done) / rate);
  if (remaining > kMaxRemaining) return;
  *metadata.mutable_remaining() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(
          absl::ToInt64Nanoseconds(remaining));
}

}  // namespace dcp::server
