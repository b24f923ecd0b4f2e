// SPDX-License-Identifier: Apache-2.0
// CheckpointClient: inspects checkpoints on a daemon and reads from them. Calls
// that fail because the daemon cannot be reached are retried; ReadTensors
// resumes where it broke off. Blocking; thread-safe; statuses begin with the
// call's name.
#ifndef CLIENT_CHECKPOINT_CLIENT_H_
#define CLIENT_CHECKPOINT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/channel.h"
#include "client/tensor_reader.h"
#include "tessera/v1/checkpoint_service.grpc.pb.h"

namespace dcp::client {

// A part of a tensor, and exactly as much memory, which the caller owns.
struct WantedPart {
  tessera::v1::ReadTensorsRequest::Part part;
  std::span<uint8_t> memory;
};

class CheckpointClient {
 public:
  using OnProgress =
      absl::FunctionRef<void(const tessera::v1::ReadProgress& progress)>;

  explicit CheckpointClient(std::shared_ptr<const Channel> channel);

  // One page.
  absl::StatusOr<tessera::v1::InspectResponse> InspectPage(
      const tessera::v1::InspectRequest& request,
      const CallOptions& options = {});
  // All pages merged into one response.
  absl::StatusOr<tessera::v1::InspectResponse> Inspect(
      tessera::v1::InspectRequest request, const CallOptions& options = {});

  // A DCP `.metadata`. It is untrusted data: read it only with a restricted
  // unpickler.
  absl::StatusOr<std::string> GetMetadata(const tessera::v1::Source& source,
                                          const CallOptions& options = {});

  // The pickles in the answers are untrusted too.
  absl::StatusOr<std::vector<tessera::v1::ReadObjectsResponse>> ReadObjects(
      const tessera::v1::ReadObjectsRequest& request,
      const CallOptions& options = {});

  // The server works while the call lasts. `on_progress` runs in this thread.
  absl::StatusOr<tessera::v1::VerifyReport> Verify(
      const tessera::v1::VerifyCheckpointRequest& request,
      OnProgress on_progress, const CallOptions& options = {});
  absl::StatusOr<tessera::v1::DiffReport> Diff(
      const tessera::v1::DiffRequest& request, OnProgress on_progress,
      const CallOptions& options = {});

  // Reads parts into the caller's memory and verifies their checksums. After an
  // error the memory holds some of the bytes. DataLoss if the server sends data
  // that does not fit; InvalidArgument if a part and the memory for it differ
  // in size.
  absl::StatusOr<ReadTensorsStats> ReadTensors(
      const tessera::v1::Source& source, std::span<const WantedPart> parts,
      const ReadTensorsOptions& options = {});
  // Reads the parts, or the rank's share, in the request into memory that
  // `allocate` provides once the sizes are known; it is called once for each
  // part, in this thread. The caller leaves `resume_offset` and `etag` unset.
  absl::StatusOr<ReadTensorsStats> ReadTensors(
      const tessera::v1::ReadTensorsRequest& request, AllocatePart allocate,
      const ReadTensorsOptions& options = {});

 private:
  // Shared with the program's other clients.
  const std::shared_ptr<const Channel> channel_;
  const std::unique_ptr<tessera::v1::CheckpointService::Stub> stub_;
};

}  // namespace dcp::client

#endif  // CLIENT_CHECKPOINT_CLIENT_H_
