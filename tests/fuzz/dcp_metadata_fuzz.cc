// SPDX-License-Identifier: Apache-2.0
// Runs ParseDcpMetadata on any bytes; writes accepted values and reads them
// back. The same bytes may be a ByteCheckpoint index.

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/index/bytecheckpoint_metadata.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

void CheckSame(const Metadata& a, const StorageInfo& a_info, const Metadata& b,
               const StorageInfo& b_info) {
  DCP_CHECK(a.files[a_info.file] == b.files[b_info.file]);
  DCP_CHECK(a_info.offset == b_info.offset && a_info.length == b_info.length);
}

void CheckSame(const Metadata& a, const Metadata& b) {
  DCP_CHECK(a.entries.size() == b.entries.size());
  DCP_CHECK(a.has_planner_data == b.has_planner_data);
  DCP_CHECK(a.save_id == b.save_id);
  for (size_t i = 0; i < a.entries.size(); ++i) {
    const MetadataEntry& x = a.entries[i];
    const MetadataEntry& y = b.entries[i];
    DCP_CHECK(x.fqn == y.fqn && x.path == y.path);
    DCP_CHECK(x.value.index() == y.value.index());
    const auto* tensor = std::get_if<TensorStorageMetadata>(&x.value);
    if (tensor == nullptr) {
      CheckSame(a, std::get<BytesStorageMetadata>(x.value).storage, b,
                std::get<BytesStorageMetadata>(y.value).storage);
      continue;
    }
    const auto& other = std::get<TensorStorageMetadata>(y.value);
    DCP_CHECK(tensor->dtype == other.dtype && tensor->size == other.size);
    DCP_CHECK(tensor->chunks.size() == other.chunks.size());
    for (size_t k = 0; k < tensor->chunks.size(); ++k) {
      DCP_CHECK(tensor->chunks[k].box == other.chunks[k].box);
      CheckSame(a, tensor->chunks[k].storage, b, other.chunks[k].storage);
    }
  }
}

void CheckByteCheckpoint(ByteSpan bytes) {
  const absl::StatusOr<ByteCheckpointMetadata> parsed =
      ParseByteCheckpointMetadata(bytes);
  if (!parsed.ok()) return;
  DCP_CHECK(parsed->chunks.size() == parsed->metadata.entries.size());
  for (size_t i = 0; i < parsed->chunks.size(); ++i) {
    const auto* tensor =
        std::get_if<TensorStorageMetadata>(&parsed->metadata.entries[i].value);
    if (tensor == nullptr) continue;
    DCP_CHECK(parsed->chunks[i].size() == tensor->chunks.size());
    for (size_t c = 0; c < tensor->chunks.size(); ++c) {
      if (Volume(tensor->chunks[c].box.sizes) == 0) continue;
      DCP_CHECK(parsed->chunks[i][c].offset < tensor->chunks[c].storage.length);
    }
  }
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dcp::CheckByteCheckpoint(dcp::ByteSpan(data, size));
  const absl::StatusOr<dcp::Metadata> metadata =
      dcp::ParseDcpMetadata(dcp::ByteSpan(data, size));
  if (!metadata.ok()) return 0;
  const std::string written = dcp::WriteDcpMetadata(*metadata);
  const absl::StatusOr<dcp::Metadata> again =
      dcp::ParseDcpMetadata(dcp::AsBytes(written));
  DCP_CHECK(again.ok(), again.status().message());
  dcp::CheckSame(*metadata, *again);
  return 0;
}
