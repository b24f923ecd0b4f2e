// SPDX-License-Identifier: Apache-2.0
// Runs ReadSafetensorsHeader on any bytes; writes accepted values and reads
// them back.

#include <cstddef>
#include <cstdint>
#include <string>

#include "dcp/base/check.h"
#include "dcp/format/safetensors/safetensors.h"
#include "tests/dcp/format/memory_item.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const dcp::testing::MemoryItem item(bytes);
  const absl::StatusOr<dcp::SafetensorsHeader> header =
      dcp::ReadSafetensorsHeader(item.length(), item);
  if (!header.ok()) return 0;

  std::string written =
      dcp::WriteSafetensorsHeader(header->tensors, header->metadata);
  const uint64_t data_offset = written.size();
  written.append(size - header->data_offset, 'd');
  const dcp::testing::MemoryItem written_item(written);
  const absl::StatusOr<dcp::SafetensorsHeader> again =
      dcp::ReadSafetensorsHeader(written_item.length(), written_item);
  DCP_CHECK(again.ok(), again.status().message());
  DCP_CHECK(again->data_offset == data_offset);
  DCP_CHECK(again->metadata == header->metadata);
  DCP_CHECK(again->saved_offsets == header->saved_offsets);
  DCP_CHECK(again->tensors.size() == header->tensors.size());
  for (size_t i = 0; i < header->tensors.size(); ++i) {
    const dcp::SafetensorsTensor& a = header->tensors[i];
    const dcp::SafetensorsTensor& b = again->tensors[i];
    DCP_CHECK(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
              a.begin == b.begin && a.end == b.end);
  }
  return 0;
}
