// SPDX-License-Identifier: Apache-2.0
// Runs ParseDigests on any bytes; writes accepted values and reads them back.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/files/digests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto digests =
      dcp::ParseDigests(dcp::AsText(dcp::ByteSpan(data, size)));
  if (!digests.ok()) return 0;
  const std::string written = dcp::WriteDigests(*digests);
  const auto again = dcp::ParseDigests(written);
  DCP_CHECK(again.ok(), again.status().message());
  DCP_CHECK(again->size() == digests->size());
  DCP_CHECK(dcp::WriteDigests(*again) == written);
  return 0;
}
