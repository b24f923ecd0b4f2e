// SPDX-License-Identifier: Apache-2.0
// Runs ParsePlanRecord and ParsePieceRecord on any bytes; writes accepted
// values and reads them back.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/records/work_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = dcp::AsText(dcp::ByteSpan(data, size));
  if (const auto plan = dcp::ParsePlanRecord(text); plan.ok()) {
    const auto again = dcp::ParsePlanRecord(dcp::WritePlanRecord(*plan));
    DCP_CHECK(again.ok(), again.status().message());
    DCP_CHECK(*again == *plan);
  }
  const dcp::WorkPlan plan{.files = {"a", "b"}, .pieces = {{0}, {1}}};
  if (const auto piece = dcp::ParsePieceRecord(text, plan); piece.ok()) {
    const std::string written = dcp::WritePieceRecord(*piece);
    const auto again = dcp::ParsePieceRecord(written, plan);
    DCP_CHECK(again.ok(), again.status().message());
    DCP_CHECK(dcp::WritePieceRecord(*again) == written);
  }
  return 0;
}
