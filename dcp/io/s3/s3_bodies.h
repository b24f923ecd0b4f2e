// SPDX-License-Identifier: Apache-2.0
// Writes the XML that requests to S3 carry. Pure; any thread.
#ifndef DCP_IO_S3_S3_BODIES_H_
#define DCP_IO_S3_S3_BODIES_H_

#include <string>

#include "absl/types/span.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

// For DeleteObjects; the server reports only errors.
std::string RemovalBody(absl::Span<const std::string> keys);

// For CompleteMultipartUpload: `parts` by number.
std::string CompletionBody(absl::Span<const ObjectPart> parts);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_BODIES_H_
