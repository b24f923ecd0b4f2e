// SPDX-License-Identifier: Apache-2.0
// Runs ReadZip on any bytes; lays out accepted archives again and reads them
// back.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/check.h"
#include "dcp/format/zip/zip_layout.h"
#include "dcp/format/zip/zip_reader.h"
#include "tests/dcp/format/memory_item.h"

namespace dcp {
namespace {

void CheckRoundTrip(const std::vector<ZipRecord>& records) {
  std::vector<ZipLayout::Record> laid_out;
  for (const ZipRecord& record : records) {
    laid_out.push_back({record.name, record.size});
  }
  const ZipLayout layout(laid_out, 64);
  const std::vector<uint32_t> crcs(records.size(), 1);
  std::string bytes;
  for (size_t i = 0; i <= records.size(); ++i) {
    bytes += layout.Gap(i, crcs);
    if (i < records.size()) bytes.append(records[i].size, 'x');
  }
  const testing::MemoryItem item(bytes);
  const absl::StatusOr<std::vector<ZipRecord>> again =
      ReadZip(item.length(), item);
  DCP_CHECK(again.ok(), again.status().message());
  DCP_CHECK(again->size() == records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    DCP_CHECK((*again)[i].name == records[i].name);
    DCP_CHECK((*again)[i].size == records[i].size);
    DCP_CHECK((*again)[i].payload_offset == layout.payload_offset(i));
  }
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const dcp::testing::MemoryItem item(bytes);
  const absl::StatusOr<std::vector<dcp::ZipRecord>> records =
      dcp::ReadZip(item.length(), item);
  if (!records.ok()) return 0;
  for (const dcp::ZipRecord& record : *records) {
    DCP_CHECK(record.payload_offset <= size &&
              record.size <= size - record.payload_offset);
  }
  dcp::CheckRoundTrip(*records);
  return 0;
}
