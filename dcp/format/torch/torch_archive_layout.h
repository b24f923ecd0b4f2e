// SPDX-License-Identifier: Apache-2.0
// TorchArchiveLayout: the layout of an archive that is to be written as
// torch.save writes it. Pure; thread-compatible.
#ifndef DCP_FORMAT_TORCH_TORCH_ARCHIVE_LAYOUT_H_
#define DCP_FORMAT_TORCH_TORCH_ARCHIVE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/zip/zip_layout.h"

namespace dcp {

// The first directory in torch.save's record names for a file at `path`: the
// file name without the last extension, or "archive" if that is not plain
// ASCII.
std::string TorchArchiveName(absl::string_view path);

// The layout of an archive that holds `pickle` and storages data/0, data/1, ...
// with the given lengths, under the first directory `name` ("archive" in DCP
// items). Only storages count as payloads between the gaps: gap i (0 <= i < n)
// is before storage i, gap n is behind the last one.
class TorchArchiveLayout {
 public:
  TorchArchiveLayout(absl::string_view name, std::string pickle,
                     std::vector<uint64_t> storage_bytes);

  uint64_t size() const { return zip_.size(); }
  uint64_t payload_offset(size_t i) const;
  uint64_t gap_length(size_t i) const;
  // `crcs` holds the CRCs for storages 0 to i-1, and may hold more.
  std::string Gap(size_t i, absl::Span<const uint32_t> crcs) const;

 private:
  std::string pickle_;
  size_t num_storages_;
  std::vector<uint64_t> storage_bytes_;
  ZipLayout zip_;
};

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_TORCH_ARCHIVE_LAYOUT_H_
