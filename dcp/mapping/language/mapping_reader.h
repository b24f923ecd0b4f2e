// SPDX-License-Identifier: Apache-2.0
// Reads a rule file into a MappingFile. Pure; any thread.
#ifndef DCP_MAPPING_LANGUAGE_MAPPING_READER_H_
#define DCP_MAPPING_LANGUAGE_MAPPING_READER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/mapping/language/mapping_file.h"

namespace dcp {

// InvalidArgument, beginning with "`file_name`:LINE:COLUMN: ", for errors in
// the text that do not depend on the model.
absl::StatusOr<MappingFile> ReadMappingFile(absl::string_view text,
                                            absl::string_view file_name);

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_MAPPING_READER_H_
