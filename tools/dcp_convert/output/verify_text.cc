// SPDX-License-Identifier: Apache-2.0
// Puts a verify's findings into a table.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include "tools/dcp_convert/output/verify_text.h"

#include "absl/strings/str_cat.h"
#include "tools/dcp_convert/options/flag_names.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {

std::string RenderFindings(const VerifyReport& report) {
  if (report.findings.empty()) return "";
  Table table({{"NAME"}, {"FILE"}, {"OFFSET", Align::kRight}, {"PROBLEM"}});
  for (const VerifyFinding& finding : report.findings) {
    table.AddRow({finding.name.empty() ? "(checkpoint)" : finding.name,
                  finding.file, absl::StrCat(finding.offset),
                  WithFlags(finding.problem)});
  }
  return absl::StrCat(table.Render(), "\n");
}

std::string RenderVerdict(const VerifyReport& report) {
  if (!report.findings.empty()) {
    return FormatPlural(report.findings.size(), "problem") + " found";
  }
  return report.checked_no_content()
             ? "the structure is sound; no content was checked, because no "
               "checksum of it is recorded"
             : "no problem found";
}

ExitCode CodeOfReport(const VerifyReport& report, bool strict) {
  if (!report.findings.empty()) return kExitFound;
  if (strict && report.num_items_unchecked > 0) return kExitFound;
  return report.checked_no_content() ? kExitUnchecked : kExitDone;
}

std::string RenderReport(absl::string_view path, const VerifyReport& report,
                         std::optional<double> seconds) {
  std::string text = RenderFindings(report);
  absl::StrAppend(&text, Printable(path), ": ", FormatName(report.format), ", ",
                  FormatPlural(report.num_tensors, "tensor"), " in ",
                  FormatPlural(report.num_chunks, "chunk"), ", ",
                  FormatPlural(report.num_objects, "object"), "\n");
  absl::StrAppend(
      &text, "checked ", FormatCount(report.num_items_checked), " of ",
      FormatPlural(report.num_items, "item"), ", ",
      FormatBytes(report.bytes_checked),
      seconds.has_value() ? absl::StrCat(", in ", FormatSeconds(*seconds)) : "",
      ": ", FormatPlural(report.num_crcs_checked, "CRC"), ", ",
      FormatPlural(report.num_digests_checked, "digest"), "\n");
  if (report.num_items_unchecked > 0) {
    const bool one = report.num_items_unchecked == 1;
    absl::StrAppend(&text, FormatPlural(report.num_items_unchecked, "item"),
                    one ? " has" : " have",
                    " neither CRC nor digest: ", one ? "its" : "their",
                    " bytes may be wrong\n");
  }
  absl::StrAppend(&text, RenderVerdict(report), "\n");
  return text;
}

}  // namespace dcp::tools
