// SPDX-License-Identifier: Apache-2.0
// Names files that no opener here reads, with advice, for error messages. They
// are recognised by their first bytes or by their names. Pure; any thread.
#ifndef DCP_FORMAT_FILE_FOREIGN_FILE_H_
#define DCP_FORMAT_FILE_FOREIGN_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// This many bytes suffice to recognise a file.
inline constexpr size_t kForeignHeadBytes = 512;

// "a GGUF file of llama.cpp, ...", with advice, from a file's first bytes;
// empty if they are unknown.
std::string ForeignContent(absl::string_view head);

// The same from a file's name; empty for other names.
std::string ForeignName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_FILE_FOREIGN_FILE_H_
