// SPDX-License-Identifier: Apache-2.0
// Runs ParseSafetensorsIndex on any bytes; writes accepted values and reads
// them back.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/safetensors/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto files = dcp::ParseSafetensorsIndex(dcp::ByteSpan(data, size));
  if (!files.ok()) return 0;
  const std::vector<std::pair<std::string, std::string>> weight_map(
      files->begin(), files->end());
  const std::string written = dcp::WriteSafetensorsIndex(7, weight_map);
  const auto again = dcp::ParseSafetensorsIndex(dcp::AsBytes(written));
  DCP_CHECK(again.ok(), again.status().message());
  DCP_CHECK(*again == *files);
  return 0;
}
