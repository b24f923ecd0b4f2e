// SPDX-License-Identifier: Apache-2.0
// The JSON objects that --json prints, one per verb; map_json.h has the
// mappings'. tools/README.md documents them; fields are kept from version to
// version. Pure; any thread.
#ifndef TOOLS_DCP_CONVERT_OUTPUT_JSON_OUTPUT_H_
#define TOOLS_DCP_CONVERT_OUTPUT_JSON_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/checkpoint/share/work_status.h"
#include "dcp/checkpoint/verify/verify.h"
#include "tools/dcp_convert/output/inspection.h"

namespace dcp::tools {

std::string InspectJson(const Inspection& inspection, bool chunks);

// A comparison's findings, and how long it took.
struct Comparison {
  DiffReport report;
  double seconds = 0;
};

std::string DiffJson(absl::string_view a, absl::string_view b,
                     const Comparison& comparison,
                     const std::optional<Tolerance>& tolerance);

// The work that one worker among several has done.
struct ShareOutcome {
  Share share;
  std::string plan_id;
  uint32_t num_pieces = 0;       // by all workers
  uint32_t num_pieces_done = 0;  // by this worker
  bool is_complete = false;      // the checkpoint is there, or verified
  bool has_committed = false;    // this worker made it appear
};

// `share` is null unless workers share the verify.
std::string VerifyJson(absl::string_view path, const VerifyReport& report,
                       double seconds, const ShareOutcome* share);

// Results that a conversion's plan does not have.
struct ConvertOutcome {
  double seconds = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t peak_memory_bytes = 0;
  std::optional<ShareOutcome> share = std::nullopt;
  std::optional<Comparison> comparison = std::nullopt;  // with the source
};

// `outcome` is null if only a plan was made.
std::string ConvertJson(absl::string_view verb, absl::string_view src,
                        absl::string_view dst, const ConvertPlan& plan,
                        const ConvertOutcome* outcome);

// A server's job.
struct JobRow {
  std::string name;
  std::string kind;   // "RESHARD"
  std::string state;  // "RUNNING"
  std::string src;
  std::string dst;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  std::string error;  // empty unless it failed
  // The result, if the caller asks for it.
  std::optional<ConvertPlan> converted = {};
  std::optional<VerifyReport> verified = {};
};
std::string JobsJson(absl::Span<const JobRow> jobs);

// `removed` is whether it is gone now.
std::string LitterJson(absl::string_view path, const Litter& litter,
                       bool removed);

// `complete` means that something is at the destination and nobody is at work
// there, or that all pieces in a verify have been checked.
std::string WorkersJson(absl::string_view dst,
                        const std::optional<WorkStatus>& status, bool complete);

std::string ErrorJson(absl::string_view verb, const absl::Status& status,
                      int exit_code);

}  // namespace dcp::tools

#endif  // TOOLS_DCP_CONVERT_OUTPUT_JSON_OUTPUT_H_
