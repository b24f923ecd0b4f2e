// SPDX-License-Identifier: Apache-2.0
// LensedEntries: the tensors that are computed when a checkpoint is opened
// through a mapping: those stored as blocks, those that an adapter changes, and
// means. Reads only the indices of other checkpoints. Plain data, except for
// LensEntries.
#ifndef DCP_CHECKPOINT_LENS_LENSED_ENTRIES_H_
#define DCP_CHECKPOINT_LENS_LENSED_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/checkpoint/files/stored_entries.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct LensedEntries {
  struct Lensed {
    std::unique_ptr<const LensedTensor> tensor;
    std::string name = {};  // for the rules; empty: the values' name
    // The stored entries that this is made from, in addition to the values'
    // entry.
    std::vector<uint32_t> tables = {};
  };
  // By the stored entry that has the values.
  absl::flat_hash_map<uint32_t, Lensed> by_values;
  // Stored entries that are only tables, not separate tensors.
  absl::flat_hash_set<uint32_t> tables;
};

// The tensors in `stored` that are computed, according to `spec` and the source
// side of the mapping. `others` are the adapter, or the checkpoints for the
// mean; all their tensors are located before elements move. `name_of` returns
// an entry's name for the rules. All arguments must outlive the result.
//
// InvalidArgument or FailedPrecondition when tensors do not belong together, or
// one is missing; Unimplemented for adapters that cannot be merged.
absl::StatusOr<LensedEntries> LensEntries(
    FileSystem& fs, const StoredEntries& stored,
    absl::Span<const StoredEntries> others, const MapSpec& spec,
    absl::FunctionRef<std::string(absl::string_view fqn)> name_of,
    const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_LENS_LENSED_ENTRIES_H_
