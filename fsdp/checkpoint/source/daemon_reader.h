// SPDX-License-Identifier: Apache-2.0
// DaemonReader: reads one load's tensors from a daemon into sinks. A sink with
// a DirectSpan receives there; the rest goes through two windows: one is filled
// while the other is placed. Used once, by one thread, which also calls the
// sinks; it runs one more thread to receive.
#ifndef FSDP_CHECKPOINT_SOURCE_DAEMON_READER_H_
#define FSDP_CHECKPOINT_SOURCE_DAEMON_READER_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/checkpoint_client.h"
#include "dcp/base/bytes.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/tensor/box.h"
#include "fsdp/checkpoint/source/checkpoint_source.h"

namespace fsdp {

class DaemonReader {
 public:
  // All arguments outlive it. Reads the checkpoint as it was under that etag.
  DaemonReader(dcp::client::CheckpointClient& client,
               const tessera::v1::Source& source, const std::string& etag,
               absl::Span<const dcp::LoadTensor> tensors,
               const CheckpointSource::ReadOptions& options);

  absl::Status Run();

 private:
  // Elements of a sink that lie in a window.
  struct Piece {
    dcp::TensorSink* sink;
    uint64_t offset;  // in the sink's payload
    dcp::MutableByteSpan bytes;
  };
  // The pieces that one call reads.
  struct Batch {
    std::vector<dcp::client::WantedPart> parts;
    std::vector<Piece> pieces;
    std::unique_ptr<uint8_t[]> window;
  };

  // The next parts, as many as a request and a window hold; none at the end.
  void Plan(Batch& batch);
  absl::Status Receive(const Batch& batch);
  absl::Status Place(const Batch& batch);

  dcp::client::CheckpointClient& client_;
  const tessera::v1::Source& source_;
  const std::string& etag_;
  const absl::Span<const dcp::LoadTensor> tensors_;
  const CheckpointSource::ReadOptions& options_;
  const uint64_t window_bytes_;
  std::stop_source stop_;
  size_t next_tensor_ = 0;
  uint64_t next_element_ = 0;
};

// The elements of `box` from row-major index `first` on: as many as form a box,
// at most `max_elements`, which is at least 1. `first` is a valid index.
dcp::Box NextRun(const dcp::Box& box, uint64_t first, uint64_t max_elements);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_DAEMON_READER_H_
