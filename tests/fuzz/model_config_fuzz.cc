// SPDX-License-Identifier: Apache-2.0
// Runs FindTensorTypes on any bytes, replaces the types that it finds, and
// finds them again. Applies the edit from SetQuantization, and removes the
// range that FindQuantization returns. After both there is still an object.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/json/json.h"
#include "dcp/format/json/model_config_edits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string json(dcp::AsText(dcp::ByteSpan(data, size)));
  const std::vector<dcp::TextRange> found = dcp::FindTensorTypes(json);
  for (auto range = found.rbegin(); range != found.rend(); ++range) {
    json.replace(range->offset, range->length, "bfloat16");
  }
  const std::vector<dcp::TextRange> again = dcp::FindTensorTypes(json);
  DCP_CHECK(again.size() == found.size(), "found=", found.size(),
            " again=", again.size());
  for (const dcp::TextRange& range : again) {
    DCP_CHECK(json.substr(range.offset, range.length) == "bfloat16");
  }
  const auto check_json = [&json] {
    DCP_CHECK(dcp::ParseJson(json, [](const dcp::JsonEvent&) {
                return absl::OkStatus();
              }).ok());
  };
  const std::optional<dcp::TextEdit> edit = dcp::SetQuantization(json, "[1]");
  if (edit.has_value()) {
    json.replace(edit->range.offset, edit->range.length, edit->by);
    check_json();
    const std::optional<dcp::TextRange> range = dcp::FindQuantization(json);
    DCP_CHECK(range.has_value());
    json.erase(range->offset, range->length);
    check_json();
  }
  return 0;
}
