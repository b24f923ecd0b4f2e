// SPDX-License-Identifier: Apache-2.0
// Refuses destinations that are a part of the source, or one file of another
// checkpoint, which would be damaged while the conversion succeeds. Looks, but
// changes nothing. Any thread.
#ifndef DCP_CHECKPOINT_CONVERT_DESTINATION_PLACE_H_
#define DCP_CHECKPOINT_CONVERT_DESTINATION_PLACE_H_

#include <stop_token>

#include "absl/status/status.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_path.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

// FailedPrecondition, with the checkpoint's name, if `dst`
//   - is a file or a directory inside `source`, and files of `source` are there
//   - has the name of a DCP data file or index
//   - is one file of a checkpoint that has several, or of a DCP checkpoint.
// A destination that takes the place of the whole source is allowed.
absl::Status CheckPlace(FileSystem& fs, const DestinationPath& dst,
                        Destination::Kind kind, const Checkpoint& source,
                        const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_DESTINATION_PLACE_H_
