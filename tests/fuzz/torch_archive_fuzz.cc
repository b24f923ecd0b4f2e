// SPDX-License-Identifier: Apache-2.0
// Runs ReadTorchArchive on any bytes, as an item and as a file, and parses and
// locates every tensor in it; writes accepted values and reads them back.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcp/base/check.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "tests/dcp/format/memory_item.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

void Locate(const Value& value, const TorchArchive& archive, uint64_t length) {
  if (IsTensor(value)) {
    const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
    if (!tensor.ok()) return;
    const absl::StatusOr<uint64_t> offset = archive.PayloadOffset(*tensor);
    if (offset.ok()) DCP_CHECK(*offset <= length);
    return;
  }
  if (!value.is(Kind::kTuple) && !value.is(Kind::kList) &&
      !value.is(Kind::kDict) && !value.is(Kind::kCall)) {
    return;
  }
  for (const Value& item : value.items()) Locate(item, archive, length);
}

void CheckRoundTrip(const TorchArchive& archive) {
  std::vector<uint64_t> storage_bytes;
  for (const auto& [key, storage] : archive.storages) {
    storage_bytes.push_back(storage.size);
  }
  const TorchArchiveLayout layout("archive", WritePickle(archive.root),
                                  storage_bytes);
  const std::vector<uint32_t> crcs(storage_bytes.size(), 1);
  std::string bytes;
  for (size_t i = 0; i <= storage_bytes.size(); ++i) {
    bytes += layout.Gap(i, crcs);
    if (i < storage_bytes.size()) bytes.append(storage_bytes[i], 'x');
  }
  const testing::MemoryItem item(bytes);
  const absl::StatusOr<TorchArchive> again =
      ReadTorchArchive(item.length(), false, item);
  DCP_CHECK(again.ok(), again.status().message());
  DCP_CHECK(again->storages.size() == storage_bytes.size());
  DCP_CHECK(DeepEqual(again->root, archive.root));
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool allow_legacy : {false, true}) {
    const dcp::testing::MemoryItem item(bytes);
    const absl::StatusOr<dcp::TorchArchive> archive =
        dcp::ReadTorchArchive(item.length(), allow_legacy, item);
    if (!archive.ok()) continue;
    for (const auto& [key, storage] : archive->storages) {
      DCP_CHECK(storage.payload_offset <= size &&
                storage.size <= size - storage.payload_offset);
    }
    dcp::Locate(archive->root, *archive, size);
    dcp::CheckRoundTrip(*archive);
    break;
  }
  return 0;
}
