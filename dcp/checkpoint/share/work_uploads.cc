// SPDX-License-Identifier: Apache-2.0
// Tested by tests/dcp/checkpoint/convert/share_store_test.cc.
#include "dcp/checkpoint/share/work_uploads.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/destination_names.h"

namespace dcp {

absl::Status RemoveUploads(FileSystem& fs, absl::string_view dst,
                           const WorkPlan& plan, int64_t before_ns) {
  const bool is_file = plan.kind == DestinationKind::kFile;
  const std::string path = WithoutTrailingSlashes(dst);
  absl::flat_hash_set<std::string> files;
  if (is_file) files.insert(path);
  for (const std::string& name : plan.files) {
    if (!is_file) files.insert(JoinPath(path, name));
  }
  DCP_ASSIGN_OR_RETURN(const std::vector<HiddenFile> hidden,
                       fs.ListHidden(is_file ? ParentDirectory(path) : path));
  for (const HiddenFile& file : hidden) {
    if (file.begun_ns >= before_ns || !files.contains(file.path)) continue;
    const absl::Status removed = fs.RemoveHidden(file);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

}  // namespace dcp
