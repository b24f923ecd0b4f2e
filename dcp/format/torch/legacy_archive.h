// SPDX-License-Identifier: Apache-2.0
// The format that torch.save wrote before PyTorch 1.6: five pickles (magic
// number, protocol version, facts about the writer, the object, the list of
// storage keys), then for every key the element count and the elements. Used
// only by torch_archive; never written. Pure; any thread.
#ifndef DCP_FORMAT_TORCH_LEGACY_ARCHIVE_H_
#define DCP_FORMAT_TORCH_LEGACY_ARCHIVE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/format/file/read_at.h"
#include "dcp/format/torch/torch_archive.h"

namespace dcp {

// True when a file that begins with `head` begins with the magic number, in any
// pickle protocol.
bool IsLegacyArchive(absl::string_view head);

// Like ReadTorchArchive, for a file for which IsLegacyArchive is true.
absl::StatusOr<TorchArchive> ReadLegacyArchive(uint64_t length, ReadAt read);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_LEGACY_ARCHIVE_H_
