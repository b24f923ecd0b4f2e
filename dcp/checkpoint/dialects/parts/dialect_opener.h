// SPDX-License-Identifier: Apache-2.0
// DialectOpener: how a program opens the directories of one dialect. A program
// chooses the dialects that it reads when it is linked: with
// dcp/checkpoint/dialects/all it reads all of them, with
// dcp/checkpoint/dialects/formats the formats themselves. Without either it
// does not link. Plain data; any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_PARTS_DIALECT_OPENER_H_
#define DCP_CHECKPOINT_DIALECTS_PARTS_DIALECT_OPENER_H_

#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/dialect.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// The checkpoint in a directory; nullopt without any sign of the dialect.
using MaybeParts = absl::StatusOr<std::optional<CheckpointParts>>;

struct DialectOpener {
  Dialect dialect;
  MaybeParts (*try_open)(const SourceDirectory&, const OpenOptions&,
                         const std::stop_token&);
  // For a directory that no opener could open: an error if it has remains of
  // this dialect, such as a save that did not finish. May be null.
  absl::Status (*check_remains)(const SourceDirectory&,
                                const std::stop_token&) = nullptr;
};

// The openers that this program has, in the order in which they are tried: a
// directory may have signs of several dialects, and the more particular ones
// come first.
absl::Span<const DialectOpener> DialectOpeners();

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_PARTS_DIALECT_OPENER_H_
