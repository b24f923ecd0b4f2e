// SPDX-License-Identifier: Apache-2.0
// Runs ParseSnapshotManifest on any bytes, read in one block, and checks the
// promises about the manifests that it accepts.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/dialects/torchsnapshot/snapshot_manifest.h"
#include "dcp/format/file/relative_path.h"

namespace {

void CheckTensor(const dcp::SnapshotManifest& manifest,
                 const dcp::SnapshotTensor& tensor) {
  DCP_CHECK(dcp::CheckedVolume(tensor.shape).has_value());
  const dcp::SnapshotRange& range = tensor.range;
  DCP_CHECK(range.file < manifest.files.size());
  DCP_CHECK(range.begin <= range.end);
  DCP_CHECK(tensor.form != dcp::SnapshotTensor::Form::kRaw || range.is_whole ||
            range.end - range.begin ==
                static_cast<uint64_t>(dcp::Volume(tensor.shape)) *
                    dcp::ElementSize(tensor.dtype));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const dcp::ByteSpan bytes(data, size);
  const auto manifest =
      dcp::ParseSnapshotManifest(size, [&](uint64_t offset, uint64_t length) {
        return absl::StatusOr<dcp::ByteSpan>(bytes.subspan(offset, length));
      });
  if (!manifest.ok()) return 0;
  for (const std::string& file : manifest->files) {
    DCP_CHECK(dcp::CheckRelativePath(file).ok());
  }
  for (const dcp::SnapshotEntry& entry : manifest->entries) {
    DCP_CHECK(entry.rank >= 0 && entry.rank < manifest->world_size);
    DCP_CHECK(!entry.path.empty());
    if (entry.kind == dcp::SnapshotEntry::Kind::kTensor) {
      CheckTensor(*manifest, entry.tensor);
    }
    for (const dcp::SnapshotPiece& piece : entry.pieces) {
      DCP_CHECK(piece.box.sizes == piece.tensor.shape);
      CheckTensor(*manifest, piece.tensor);
    }
  }
  return 0;
}
