// SPDX-License-Identifier: Apache-2.0
// MappedEntries: the entries of a checkpoint that is opened through a mapping:
// tensors under the names and shapes of another program, whose elements are
// those of the stored tensors. Nothing moves here. Plain data, except
// for the functions.
#ifndef DCP_CHECKPOINT_MAPPED_MAPPED_ENTRIES_H_
#define DCP_CHECKPOINT_MAPPED_MAPPED_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/lens/lensed_entries.h"
#include "dcp/checkpoint/mapped/mapped_tensor.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/equations/mapped_tensors.h"

namespace dcp {

struct MappedEntries {
  std::vector<CheckpointEntry> entries;
  // What `entries` point to: their tensors, and what those are made of: stored
  // tensors, and computed ones, whose stored entry is that of their values.
  std::vector<std::unique_ptr<const MappedTensor>> tensors;
  std::vector<const TensorEntry*> sources;
  std::vector<uint32_t> entry_of_source;  // its index among the stored
  // By entry: the stored entries that it is made of, by index, sorted.
  std::vector<std::vector<uint32_t>> stored;
  // What must be equal in the source; both numbers of a piece are of `sources`.
  std::vector<StridedPiece> ties;
  LensedEntries lensed;
  // What is computed after the rules applied: other numbers, and codes and
  // scales of tensors, which are sources of mapped tensors too.
  std::vector<std::unique_ptr<const LensedTensor>> computed;
  // If something is encoded: the weights that are not, without ".weight".
  std::vector<std::string> not_encoded;
  // Whether elements can be made in parts, from what is read for each part.
  bool are_made_in_parts() const;
  bool has_encoded() const;
  // Appends the stored entries that a source consists of.
  void AppendStored(uint32_t source, std::vector<uint32_t>& numbers) const;
  // What the mapping did, with rules that compute marked; its tensors and
  // pieces have moved into `entries`.
  MappedTensors report;
};

// InvalidArgument if the mapping does not have the sides, or if the states of a
// side that has none are said to begin with something.
absl::Status CheckSides(const MapSpec& spec);

// What the mapping makes of `stored`, which must outlive the result and stay
// where it is, as must `others`; see LensEntries. Objects keep their names.
// Errors are those of LensEntries and Mapping::Map, whose DataLoss is marked as
// a misfit (dcp/base/error_misfit.h); also FailedPrecondition if two tensors
// have one name for the rules, or in the result.
absl::StatusOr<MappedEntries> MapEntries(FileSystem& fs,
                                         const StoredEntries& stored,
                                         absl::Span<const StoredEntries> others,
                                         const MapSpec& spec,
                                         const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAPPED_ENTRIES_H_
