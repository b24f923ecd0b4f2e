// SPDX-License-Identifier: Apache-2.0
// MappedEntries: the entries in a checkpoint that is opened through a mapping:
// tensors under another program's names and shapes, with the stored tensors'
// elements. Nothing moves here. Plain data, except for the functions.
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
  // The tensors that `entries` point to, and their sources: stored tensors, and
  // computed ones, for which the stored entry is the one with the values.
  std::vector<std::unique_ptr<const MappedTensor>> tensors;
  std::vector<const TensorEntry*> sources;
  std::vector<uint32_t> entry_of_source;  // index among the stored
  // By entry: the stored entries that it is made from, by index, sorted.
  std::vector<std::vector<uint32_t>> stored;
  // Elements that must be equal in the source; both numbers in a piece index
  // `sources`.
  std::vector<StridedPiece> ties;
  LensedEntries lensed;
  // Tensors that are computed after the rules: rescaled numbers, and codes and
  // scales of tensors, which are sources of mapped tensors too.
  std::vector<std::unique_ptr<const LensedTensor>> computed;
  // If something is encoded: the weights that are not, without ".weight".
  std::vector<std::string> not_encoded;
  // Whether elements can be made in parts, from separate reads for each part.
  bool are_made_in_parts() const;
  bool has_encoded() const;
  // Appends the stored entries that make up a source.
  void AppendStored(uint32_t source, std::vector<uint32_t>& numbers) const;
  // The mapping's report, with computing rules marked; the tensors and pieces
  // have moved into `entries`.
  MappedTensors report;
};

// InvalidArgument if the mapping does not have the sides, or if `spec` names a
// prefix for the states of a side without states.
absl::Status CheckSides(const MapSpec& spec);

// The mapping applied to `stored`, which must outlive the result and stay in
// place, as must `others`; see LensEntries. Objects keep their names. Errors
// are those from LensEntries and Mapping::Map; DataLoss among them is marked as
// a misfit (dcp/base/error_misfit.h). Also FailedPrecondition if two tensors
// have one name for the rules, or in the result.
absl::StatusOr<MappedEntries> MapEntries(FileSystem& fs,
                                         const StoredEntries& stored,
                                         absl::Span<const StoredEntries> others,
                                         const MapSpec& spec,
                                         const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAPPED_ENTRIES_H_
