// SPDX-License-Identifier: Apache-2.0
// The uploads that workers which share a conversion into an object store leave
// behind: those of workers that died, or that wrote what another one had
// written. Blocking; any thread.
#ifndef DCP_CHECKPOINT_SHARE_WORK_UPLOADS_H_
#define DCP_CHECKPOINT_SHARE_WORK_UPLOADS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/share/work_records.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Ends the uploads of the files of `plan` at `dst` that began before
// `before_ns`, since 1970, by the clock of the store.
absl::Status RemoveUploads(FileSystem& fs, absl::string_view dst,
                           const WorkPlan& plan, int64_t before_ns);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SHARE_WORK_UPLOADS_H_
