// SPDX-License-Identifier: Apache-2.0
// PlanId and WorkPlan: everything that determines which bytes a conversion
// writes where, as text, as an id, and as pieces. Two conversions with the same
// id write the same bytes into files with the same names. Any thread.
#ifndef DCP_CHECKPOINT_CONVERT_PLAN_ID_H_
#define DCP_CHECKPOINT_CONVERT_PLAN_ID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/records/work_record.h"
#include "dcp/io/file_system.h"
#include "dcp/plan/pieces.h"

namespace dcp {

// Who looks at the source's files.
enum class SourceView : uint8_t {
  kThisMachine,  // inodes tell a file from another one
  // Only sizes and times, also the time of the last change, are the same for
  // all, and inodes in object stores.
  kAnyMachine,
};

// The format, the options that decide bytes (see SpecText) and the selected
// values; the open files of the source, with sizes and times; the output's
// layouts with their payloads, and the places of these in the source.
std::string PlanText(const Conversion& conversion,
                     const ConvertOptions& options, SourceView view);

// 32 hexadecimal digits: the same for every worker that converts the same
// source with the same options and the same version of the planners, in pieces
// of about `piece_bytes`, whatever the paths, the memory and the worker count.
// The names of DCP files in the output do not have the id yet.
std::string PlanId(const Conversion& conversion, const ConvertOptions& options,
                   uint64_t piece_bytes);

// The files of `output` for the functions in pieces.h. If they are not cut,
// each is one piece.
std::vector<FileToCut> FilesToCut(const Output& output, bool cuts);

// The plan for all workers or runs. The pieces have about `piece_bytes`, or are
// whole files if `cuts_files` is off.
WorkPlan MakeWorkPlan(const Conversion& conversion, bool cuts_files,
                      uint64_t piece_bytes = 0);

// 32 hexadecimal digits that are the same for the same text.
std::string IdOfText(std::string text);

// Appends the file `name`, as it was when it was opened or looked at, to such a
// text. In a store, all machines see the same inode.
void AppendFile(absl::string_view name, const FileInfo& info, SourceView view,
                bool is_in_store, std::string& text);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_PLAN_ID_H_
