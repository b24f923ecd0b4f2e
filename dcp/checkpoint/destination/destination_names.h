// SPDX-License-Identifier: Apache-2.0
// The names of the files that writers of checkpoints make. A later writer
// recognises by them which files it may replace or remove. Pure; any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_DESTINATION_NAMES_H_
#define DCP_CHECKPOINT_DESTINATION_DESTINATION_NAMES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// "__{rank}_{i}.distcp": the name of a DCP writer's data file, ours or
// PyTorch's; or "__{rank}_{i}.<id>.distcp", which writers choose that cannot
// see the files there.
bool IsDataFileName(absl::string_view name);
// Such a name; without "<id>." if `id` is empty.
std::string DataFileName(int64_t rank, uint64_t i, absl::string_view id = "");

// "__{rank}.metadata": the index of one rank, which would outlive the data that
// it names.
bool IsRankIndexName(absl::string_view name);

// ".metadata.<id>.tmp" for the run `id`.
std::string TemporaryIndexName(absl::string_view id);
// Such a name, or ".metadata.tmp" as other writers name it.
bool IsTemporaryIndexName(absl::string_view name);

// A model's weights, their index, or their digests.
bool BelongsToSafetensors(absl::string_view name);

// `name` for use in the names of files next to it, such as the lock: unchanged
// unless they would be longer than file systems allow; then the beginning of
// `name` and a digest.
std::string ShortName(absl::string_view name);

// "<parent>/.<name>.<id>.<suffix>": the run `id` prepares there the file or
// directory that becomes `path`. The name is the short one.
std::string SiblingPath(absl::string_view path, absl::string_view id,
                        absl::string_view suffix);
// Whether `name` is the SiblingPath name, in any run, for something named
// `base`.
bool IsSiblingName(absl::string_view name, absl::string_view base,
                   absl::string_view suffix);
// ".<base>.<id>.tmp", or ".<base>.partial" as earlier versions named it.
bool IsLeftSiblingName(absl::string_view name, absl::string_view base);

// ".work-<id>": the directory in a DCP directory that holds the records of
// workers that share the conversion `id`.
std::string WorkRecordsName(absl::string_view id);
bool IsWorkRecordsName(absl::string_view name);

// The suffix of their directory next to anything else; see SiblingPath.
inline constexpr absl::string_view kWorkRecordsSuffix = "work";

std::string WithoutTrailingSlashes(absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DESTINATION_NAMES_H_
