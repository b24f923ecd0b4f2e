// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/common_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/format/torch/value_copy.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr absl::string_view kPrefix = "common";

absl::StatusOr<TorchArchive> ReadItem(FileSystem& fs, const StorageInfo& item,
                                      const std::stop_token& stop,
                                      CheckpointParts& parts) {
  DCP_RETURN_IF_ERROR(
      parts.files->CheckRange(item.file, item.offset, item.length));
  DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(item.file));
  FileReader reader(fs, file, item.offset, item.length, stop);
  return ReadTorchArchive(item.length, /*allow_legacy=*/false, reader.read_at(),
                          /*check_crcs=*/true);
}

}  // namespace

absl::StatusOr<std::vector<CheckpointEntry>> ReadCommonState(
    FileSystem& fs, const StorageInfo& item, const std::stop_token& stop,
    CheckpointParts& parts) {
  DCP_ASSIGN_OR_RETURN(const TorchArchive archive,
                       ReadItem(fs, item, stop, parts));
  Value root = CopyValue(parts.arena, archive.root);
  if (root.is(Kind::kList) && root.items().size() == 1) root = root.items()[0];
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(root);
  if (!leaves.ok()) return absl::DataLossError(leaves.status().message());
  std::vector<CheckpointEntry> entries;
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    leaf.path.insert(leaf.path.begin(), std::string(kPrefix));
    std::string fqn = PathToName(leaf.path);
    absl::StatusOr<CheckpointEntry> entry =
        EntryInArchive(archive, leaf.value, item.file, item.offset);
    if (!entry.ok()) return Annotate(entry.status(), fqn);
    entry->fqn = std::move(fqn);
    entry->path = std::move(leaf.path);
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace dcp
