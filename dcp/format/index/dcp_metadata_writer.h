// SPDX-License-Identifier: Apache-2.0
// Writes a DCP checkpoint's index, .metadata. Pure; any thread.
#ifndef DCP_FORMAT_INDEX_DCP_METADATA_WRITER_H_
#define DCP_FORMAT_INDEX_DCP_METADATA_WRITER_H_

#include <string>

#include "dcp/tensor/metadata.h"

namespace dcp {

// Writes the profile that PyTorch 2.4 and later read: attributes in their
// order, storage_meta with `save_id`, version "1.0.0".
std::string WriteDcpMetadata(const Metadata& metadata);

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_DCP_METADATA_WRITER_H_
