// SPDX-License-Identifier: Apache-2.0
// The verb inspect: opens a checkpoint, or asks the daemon, and shows the
// index.
// Tested by tests/tools/dcp_convert/dcp_convert_test.sh.
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_side.h"
#include "dcp/base/glob_set.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "tools/dcp_convert/commands/commands.h"
#include "tools/dcp_convert/daemon/daemon.h"
#include "tools/dcp_convert/output/inspection.h"
#include "tools/dcp_convert/output/json_output.h"
#include "tools/dcp_convert/output/progress.h"
#include "tools/dcp_convert/output/render.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// Each object's value costs a read, and nobody reads more on a screen.
constexpr size_t kMaxObjectsRead = 1000;

std::optional<uint64_t> FileSize(FileSystem& fs, SourceFiles& files,
                                 uint32_t file) {
  const absl::StatusOr<FileInfo> info = fs.Stat(files.FullPath(file));
  if (!info.ok()) return std::nullopt;
  if (info->kind == FileKind::kFile) return info->size;
  // If a checkpoint is a single file, the path may be a link.
  const absl::StatusOr<File> opened = files.Get(file);
  if (!opened.ok()) return std::nullopt;
  return opened->size;
}

std::vector<Inspection::DataFile> DataFiles(FileSystem& fs,
                                            SourceFiles& files) {
  std::vector<Inspection::DataFile> sizes;
  for (uint32_t i = 0; i < files.names().size(); ++i) {
    sizes.push_back({files.names()[i], FileSize(fs, files, i)});
  }
  return sizes;
}

// The objects to be shown that have not been read.
std::vector<uint32_t> UnreadObjects(const Checkpoint& checkpoint,
                                    absl::string_view glob) {
  std::vector<uint32_t> unread;
  for (uint32_t i = 0; i < checkpoint.entries().size(); ++i) {
    const CheckpointEntry& entry = checkpoint.entries()[i];
    const ObjectEntry* object = entry.object();
    if (object == nullptr || object->located) continue;
    if (glob.empty() || MatchesGlob(glob, entry.fqn)) unread.push_back(i);
  }
  return unread;
}

// InvalidArgument if a pattern was given and matches nothing.
absl::Status CheckMatches(const CommandLine& line, const Inspection& inspection,
                          size_t num_entries) {
  if (line.inspect.tensors_glob.empty() || !inspection.tensors.empty() ||
      !inspection.objects.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--tensors '", line.inspect.tensors_glob,
                   "' matches none of ", FormatPlural(num_entries, "name")));
}

InspectionView RequestedView(const CommandLine& line) {
  return {.chunks = line.inspect.chunks,
          .all = line.inspect.all,
          .depth = line.inspect.depth,
          .limit = line.inspect.limit};
}

absl::StatusOr<ExitCode> InspectThere(const Context& context) {
  const CommandLine& line = context.line;
  DCP_ASSIGN_OR_RETURN(OwnedInspection owned, context.daemon->Inspect(line));
  owned.inspection.path = line.paths[0];
  DCP_RETURN_IF_ERROR(CheckMatches(line, owned.inspection, owned.num_entries));
  context.console.out << (line.json ? InspectJson(owned.inspection,
                                                  line.inspect.chunks)
                                    : RenderInspection(owned.inspection,
                                                       RequestedView(line)));
  return kExitDone;
}

}  // namespace

absl::StatusOr<ExitCode> RunInspect(const Context& context) {
  const CommandLine& line = context.line;
  if (context.daemon != nullptr) return InspectThere(context);
  const TransferStats stats;
  static OpenProgress opening;  // lives as long as the checkpoint
  ProgressDisplay progress(context.console, "inspect", line.progress,
                           ProgressDisplay::Counting::kReads, stats, &opening);
  OpenOptions options = SourceOpenOptions(line);
  options.direct = DirectMode::kOff;
  options.check_index = false;  // shows damaged ones, too
  options.progress = &opening;
  absl::StatusOr<std::unique_ptr<Checkpoint>> opened =
      Checkpoint::Open(context.fs, line.paths[0], options, context.stop);
  if (!opened.ok()) return WithSide(opened.status(), ErrorSide::kSource);
  // Never freed: destroying a hundred thousand entries takes a tenth of the
  // command's time, and the process ends anyway.
  static Checkpoint* checkpoint;
  checkpoint = opened->release();
  const std::vector<uint32_t> unread =
      UnreadObjects(*checkpoint, line.inspect.tensors_glob);
  absl::Status objects;
  std::string note;
  if (unread.size() > kMaxObjectsRead) {
    note = absl::StrCat("Values of ", FormatPlural(unread.size(), "object"),
                        " were not read: more than ", kMaxObjectsRead,
                        "; choose some with --tensors.");
  } else {
    objects = checkpoint->Locate(unread, context.stop);
    if (absl::IsCancelled(objects)) return objects;
    objects = WithSide(std::move(objects), ErrorSide::kSource);
    if (!objects.ok()) note = "Objects could not be read.";
  }
  Inspection inspection =
      InspectEntries(checkpoint->entries(), line.inspect.tensors_glob);
  DCP_RETURN_IF_ERROR(
      CheckMatches(line, inspection, checkpoint->entries().size()));
  progress.Finish();
  inspection.path = line.paths[0];
  inspection.format = checkpoint->format();
  inspection.properties = checkpoint->properties();
  inspection.warnings = LossTexts(checkpoint->losses());
  inspection.files = DataFiles(context.fs, checkpoint->files());
  inspection.objects_note = std::move(note);
  // Everything readable is shown even if objects are damaged. With --json the
  // error is printed instead, because standard output gets only one object.
  if (line.json) {
    DCP_RETURN_IF_ERROR(objects);
    context.console.out << InspectJson(inspection, line.inspect.chunks);
    return kExitDone;
  }
  context.console.out << RenderInspection(inspection, RequestedView(line));
  DCP_RETURN_IF_ERROR(objects);
  return kExitDone;
}

}  // namespace dcp::tools
