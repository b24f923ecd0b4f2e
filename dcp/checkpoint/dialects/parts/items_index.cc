// SPDX-License-Identifier: Apache-2.0
// Looks for a key near the beginning of metadata.pkl.
// Tested by tests/dcp/checkpoint/open/no_checkpoint_test.cc.

#include "dcp/checkpoint/dialects/parts/items_index.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/file_reader.h"

namespace dcp {
namespace {

constexpr absl::string_view kItemsIndex = "metadata.pkl";
constexpr absl::string_view kItemsIndexKey = "nested_path_to_metadata";
constexpr uint64_t kItemsIndexHeadBytes = 4096;

}  // namespace

absl::StatusOr<bool> HasItemsIndex(const SourceDirectory& directory,
                                   const std::stop_token& stop) {
  if (!directory.HasFile(kItemsIndex)) return false;
  const std::string path = directory.FullPath(kItemsIndex);
  DCP_ASSIGN_OR_RETURN(const File file,
                       directory.fs->OpenForRead(path, DirectMode::kOff,
                                                 /*follow_symlinks=*/false));
  FileReader reader(*directory.fs, file, 0, file.size, stop);
  const absl::StatusOr<ByteSpan> head =
      reader.Read(0, std::min(kItemsIndexHeadBytes, file.size));
  DCP_RETURN_IF_ERROR(directory.fs->Close(file));
  if (!head.ok()) return Annotate(head.status(), path);
  return absl::StrContains(AsText(*head), kItemsIndexKey);
}

}  // namespace dcp
