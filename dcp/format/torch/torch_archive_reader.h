// SPDX-License-Identifier: Apache-2.0
// Reads files that torch.save wrote. Pure; any thread.
#ifndef DCP_FORMAT_TORCH_TORCH_ARCHIVE_READER_H_
#define DCP_FORMAT_TORCH_TORCH_ARCHIVE_READER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "dcp/format/file/read_at.h"
#include "dcp/format/torch/torch_archive.h"

namespace dcp {

// Reads only the structure, no payload. `allow_legacy` also accepts the old
// format (for state dict files, never for items in a DCP checkpoint). With
// `check_crcs`, DataLoss for a record that is read here and contradicts the
// CRC-32.
absl::StatusOr<TorchArchive> ReadTorchArchive(uint64_t length,
                                              bool allow_legacy, ReadAt read,
                                              bool check_crcs = false);

// Reads a pickle without an archive around it, as programs write it with
// Python's own module. DataLoss if it is not a pickle.
absl::StatusOr<TorchArchive> ReadBarePickle(uint64_t length, ReadAt read);

}  // namespace dcp

#endif  // DCP_FORMAT_TORCH_TORCH_ARCHIVE_READER_H_
