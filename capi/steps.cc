// SPDX-License-Identifier: Apache-2.0
// The steps of a run.
//
// Tested by tests/capi/capi_test.cc.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "capi/handles.h"
#include "capi/tessera.h"
#include "dcp/base/error_place.h"
#include "dcp/checkpoint/destination/step_directories.h"
#include "dcp/format/json/json.h"

tessera_error* tessera_newest_step(const char* directory, tessera_bytes** out) {
  std::vector<std::string> skipped;
  const auto newest = dcp::NewestWholeStep(
      dcp::capi::ProcessFileSystem(), directory, [&](const std::string& line) {
        skipped.push_back(dcp::QuoteJson(line));
      });
  if (!newest.ok()) {
    return dcp::capi::MakeError(
        dcp::WithPlace(newest.status(), {.path = directory}));
  }
  *out = dcp::capi::MakeBytes(absl::StrCat(
      "{\"step\":", newest->has_value() ? absl::StrCat(**newest) : "null",
      ",\"skipped\":[", absl::StrJoin(skipped, ","), "]}"));
  return nullptr;
}

tessera_error* tessera_remove_old_steps(const char* directory, int64_t durable,
                                        int64_t keep_last, int64_t keep_every,
                                        tessera_bytes** out) {
  std::vector<std::string> lines;
  dcp::RemoveOldSteps(
      dcp::capi::ProcessFileSystem(), directory, durable,
      {.keep_last = keep_last, .keep_every = keep_every},
      [&](const std::string& line) { lines.push_back(dcp::QuoteJson(line)); });
  *out =
      dcp::capi::MakeBytes(absl::StrCat("[", absl::StrJoin(lines, ","), "]"));
  return nullptr;
}
