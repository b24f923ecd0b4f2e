// The index of a DCP checkpoint, .metadata, as PyTorch 2.2 and later write it.
// Reading checks what the index alone can tell: types, unique names, paths that
// stay inside the directory, chunks in bounds, exactly one storage entry for
// every chunk. dcp/plan checks whether the chunks of a tensor cover it without
// overlap. Pure; any thread.
#ifndef DCP_FORMAT_DCP_METADATA_H_
#define DCP_FORMAT_DCP_METADATA_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes);

// Writes the profile that PyTorch 2.4 and later read: attributes in their
// order, storage_meta with `save_id`, version "1.0.0".
std::string WriteDcpMetadata(const Metadata& metadata);

// InvalidArgument unless `path` is a relative path that stays inside its
// directory: not empty, no NUL, no empty, "." or ".." component.
absl::Status CheckRelativePath(absl::string_view path);

}  // namespace dcp

#endif  // DCP_FORMAT_DCP_METADATA_H_
