// SPDX-License-Identifier: Apache-2.0
// A DCP checkpoint's index, .metadata, as PyTorch 2.2 and later write it.
// Reading makes every check that the index alone allows: types, unique names,
// paths that stay inside the directory, chunks in bounds, exactly one storage
// entry for every chunk. dcp/plan checks whether a tensor's chunks cover it
// without overlap. Pure; any thread.
#ifndef DCP_FORMAT_INDEX_DCP_METADATA_H_
#define DCP_FORMAT_INDEX_DCP_METADATA_H_

#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/format/index/metadata_objects.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes);

// Parses the attributes of a pickled Metadata, with the objects that `objects`
// has replaced. For an index that is DCP's with additions.
absl::StatusOr<Metadata> ParseDcpMetadata(const Attributes& attributes,
                                          MetadataObjects& objects);

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_DCP_METADATA_H_
