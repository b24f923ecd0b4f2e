// SPDX-License-Identifier: Apache-2.0
// The index of a DCP checkpoint, .metadata, as PyTorch 2.2 and later write it.
// Reading checks what the index alone can tell: types, unique names, paths that
// stay inside the directory, chunks in bounds, exactly one storage entry for
// every chunk. dcp/plan checks whether the chunks of a tensor cover it without
// overlap. Pure; any thread.
#ifndef DCP_FORMAT_INDEX_DCP_METADATA_H_
#define DCP_FORMAT_INDEX_DCP_METADATA_H_

#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/format/index/metadata_objects.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes);

// The same for the attributes of a pickled Metadata whose objects `objects` has
// replaced, for an index that is DCP's with something in addition.
absl::StatusOr<Metadata> ParseDcpMetadata(const Attributes& attributes,
                                          MetadataObjects& objects);

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_DCP_METADATA_H_
