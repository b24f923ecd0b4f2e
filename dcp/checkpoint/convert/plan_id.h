// SPDX-License-Identifier: Apache-2.0
// What determines which bytes a conversion writes where, as text and as an id:
// two conversions with the same id write the same bytes into files of the same
// names. Any thread.
#ifndef DCP_CHECKPOINT_CONVERT_PLAN_ID_H_
#define DCP_CHECKPOINT_CONVERT_PLAN_ID_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/conversion.h"
#include "dcp/checkpoint/convert/convert_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Who looks at the files of a source.
enum class SourceView : uint8_t {
  kThisMachine,  // their inodes tell a file from its replacement
  // Only sizes and times, that of the last change too, are the same for all,
  // and inodes in object stores.
  kAnyMachine,
};

// The format and the metadata, the selected values, the rule file, config.json
// and settings of a mapping, and what it makes, the files of the source that
// are open, with their sizes and times, and the layouts of the output with
// their payloads.
std::string PlanText(const Conversion& conversion,
                     const ConvertOptions& options, SourceView view);

// 32 hexadecimal digits: the same for every worker that converts the same
// source with the same options and the same version of the planners, in pieces
// of about `piece_bytes`; whatever its paths, its memory and the number of
// workers. The names of DCP files in the output do not have the id yet.
std::string PlanId(const Conversion& conversion, const ConvertOptions& options,
                   uint64_t piece_bytes);

// 32 hexadecimal digits that are the same for the same text.
std::string IdOfText(std::string text);

// The file `name`, as it was when it was opened or looked at, for such a text;
// `is_in_store` is whether all machines see the same inode.
void AppendFile(absl::string_view name, const FileInfo& info, SourceView view,
                bool is_in_store, std::string& text);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_PLAN_ID_H_
