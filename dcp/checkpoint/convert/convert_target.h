// SPDX-License-Identifier: Apache-2.0
// ConvertTarget: the format and kind of the output, from the options and the
// destination's name, and whether the options fit together. Any thread.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_TARGET_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_TARGET_H_

#include <optional>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

struct ConvertTarget {
  Format format = Format::kDcp;
  Destination::Kind kind = Destination::Kind::kDcpDirectory;
  std::optional<Dialect> dialect;  // as ConvertOptions::to_dialect
};

// The target at `dst` for a source in the format `from`. InvalidArgument for
// options that contradict it or each other, and for a `dst` with another file
// kind's suffix if only that tells the format. Looks at the disk.
absl::StatusOr<ConvertTarget> ChooseTarget(FileSystem& fs,
                                           const DestinationPath& dst,
                                           Format from,
                                           const ConvertOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_TARGET_H_
