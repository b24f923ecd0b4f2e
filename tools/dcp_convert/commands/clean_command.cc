// SPDX-License-Identifier: Apache-2.0
// The verb clean: lists or removes files that dead writers left.
// Tested by tests/tools/dcp_convert/commands/clean_command_test.cc.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/litter.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

std::string DateText(int64_t ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixNanos(ns),
                          absl::UTCTimeZone());
}

std::string Render(const Litter& litter) {
  Table table({{"WRITTEN (UTC)"}, {"SIZE", Align::kRight}, {"WHAT"}});
  for (const HiddenFile& upload : litter.uploads) {
    table.AddRow(
        {DateText(upload.begun_ns), "",
         absl::StrCat(Printable(upload.path), " (unfinished upload)")});
  }
  for (const StoredFile& file : litter.files) {
    table.AddRow({DateText(file.modified_ns), FormatBytes(file.size),
                  Printable(file.path)});
  }
  std::string text = table.Render();
  for (const std::string& folder : litter.unclear) {
    absl::StrAppend(&text, "left alone: ", Printable(folder), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<ExitCode> RunClean(const Context& context) {
  const CommandLine& line = context.line;
  const std::string& path = line.paths[0];
  const absl::Time before = absl::Now() - line.clean.older_than;
  DCP_ASSIGN_OR_RETURN(
      const Litter litter,
      FindLitter(context.fs, path, absl::ToUnixNanos(before), context.stop));
  const size_t num = litter.uploads.size() + litter.files.size();
  if (line.clean.yes) {
    DCP_RETURN_IF_ERROR(RemoveLitter(context.fs, litter, context.stop));
  }
  if (line.json) {
    context.console.out << LitterJson(path, litter, line.clean.yes);
    return kExitDone;
  }
  if (num + litter.unclear.size() > 0) context.console.out << Render(litter);
  if (num == 0) {
    context.console.out << Printable(path) << ": nothing to remove\n";
  } else if (line.clean.yes) {
    context.console.out << "removed " << FormatCount(num) << "\n";
  } else {
    context.console.out << FormatCount(num)
                        << " to remove; --yes removes them\n";
  }
  return kExitDone;
}

}  // namespace dcp::tools
