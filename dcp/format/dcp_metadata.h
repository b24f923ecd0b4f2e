// .metadata, the index of a DCP checkpoint, as written by PyTorch 2.2 and
// later. Reading checks everything that can be checked without the data
// files: paths stay inside the directory, chunks lie in bounds, are disjoint
// and cover their tensor, every chunk has its storage entry. Pure; any thread.
#ifndef DCP_FORMAT_DCP_METADATA_H_
#define DCP_FORMAT_DCP_METADATA_H_

#include <string>

#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

absl::StatusOr<Metadata> ParseDcpMetadata(ByteSpan bytes);

// In the profile that PyTorch 2.4 and later read: attributes in their order,
// storage_meta with `save_id`, version "1.0.0".
std::string WriteDcpMetadata(const Metadata& metadata);

// InvalidArgument unless `path` is a relative path that stays inside its
// directory: not empty, no NUL, no empty, "." or ".." component.
absl::Status CheckRelativePath(absl::string_view path);

}  // namespace dcp

#endif  // DCP_FORMAT_DCP_METADATA_H_
