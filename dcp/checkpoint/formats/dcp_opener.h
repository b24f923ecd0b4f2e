// SPDX-License-Identifier: Apache-2.0
// Opens a DCP directory: reads .metadata, checks that every tensor's chunks
// cover it, and makes entries. item_locator examines the items later. Any
// thread.
#ifndef DCP_CHECKPOINT_FORMATS_DCP_OPENER_H_
#define DCP_CHECKPOINT_FORMATS_DCP_OPENER_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

inline constexpr absl::string_view kDcpMetadataName = ".metadata";

// "__3.metadata": the index of one rank's own items.
std::string RankMetadataName(int64_t rank);

// The rank that has an index with this name; nullopt for other names.
std::optional<int64_t> ParseRankMetadataName(absl::string_view name);

// Reads the index at `path`.
absl::StatusOr<Metadata> ReadDcpIndex(FileSystem& fs, absl::string_view path,
                                      const std::stop_token& stop = {});

// The entry, which is moved out of the index. DataLoss if a tensor's chunks do
// not cover it.
absl::StatusOr<CheckpointEntry> MakeIndexEntry(MetadataEntry& from);

// Opens the checkpoint in `directory` that has this index. The entries are in
// the index's order.
absl::StatusOr<CheckpointParts> OpenIndexedDcp(
    FileSystem& fs, absl::string_view directory, Metadata metadata,
    const OpenOptions& options, const std::stop_token& stop = {});

// Reads the index and opens the checkpoint. Cancelled once `stop` is requested,
// but parsing the index is not interrupted.
absl::StatusOr<CheckpointParts> OpenDcp(FileSystem& fs,
                                        absl::string_view directory,
                                        absl::string_view metadata_name,
                                        const OpenOptions& options,
                                        const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_DCP_OPENER_H_
