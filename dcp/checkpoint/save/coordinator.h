// SPDX-License-Identifier: Apache-2.0
// Coordinator: the few collective steps of saving and loading, independent of
// how ranks communicate. One of the eight interfaces: fsdp/checkpoint
// implements it with c10d; the implementation here serves a single process.
// Every rank makes the same calls in the same order; each call blocks until all
// ranks have made it. Used by one thread at a time.
#ifndef DCP_CHECKPOINT_SAVE_COORDINATOR_H_
#define DCP_CHECKPOINT_SAVE_COORDINATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

class Coordinator {
 public:
  virtual ~Coordinator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t num_ranks() const = 0;

  // On rank 0, the values from all ranks, by rank; elsewhere empty.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      std::string value) = 0;
  // Gives each rank one element of rank 0's `values`; other ranks' values are
  // ignored.
  virtual absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) = 0;
};

class SingleProcessCoordinator final : public Coordinator {
 public:
  int64_t rank() const override { return 0; }
  int64_t num_ranks() const override { return 1; }
  absl::StatusOr<std::vector<std::string>> Gather(std::string value) override;
  absl::StatusOr<std::string> Scatter(std::vector<std::string> values) override;
};

// Turns one rank's failure into a failure of all: returns OK everywhere, or on
// every rank an error that names the first rank that failed and why.
absl::Status Agree(Coordinator& coordinator, const absl::Status& mine);

// A status as text for the other ranks: "<code> <message>". Decoding anything
// else gives an Internal error.
std::string EncodeStatus(const absl::Status& status);
absl::Status DecodeStatus(absl::string_view text);

// The first error among the statuses of all ranks, prefixed with "rank <r>: ".
absl::Status FirstError(absl::Span<const absl::Status> statuses);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_COORDINATOR_H_
