// SPDX-License-Identifier: Apache-2.0
// ExtraFiles: the torch.save files that trainers keep next to a model and an
// optimizer: scheduler, random states, scaler. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_EXTRA_FILES_H_
#define DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_EXTRA_FILES_H_

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/dialects/parts/join_parts.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// The files with names that match `patterns`, each as extra.STEM: the name
// without the suffix. In a pattern, {rank} is the number of the rank that has
// the file, which is not part of the stem: random_states_{rank}.pkl is
// extra.random_states, and values that differ are extra.random_states...@1.
// {number} distinguishes similar files: custom_checkpoint_{number}.pkl is
// extra.custom_checkpoint_0 and so on. Nullopt if there are none; NotFound if
// some ranks' files are missing.
absl::StatusOr<std::optional<PartToJoin>> OpenExtraFiles(
    const SourceDirectory& directory,
    absl::Span<const absl::string_view> patterns, const OpenOptions& options,
    const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_EXTRA_FILES_H_
