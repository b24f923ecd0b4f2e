// SPDX-License-Identifier: Apache-2.0
// Names files that no opener here reads, and a way out, for error messages.
// They are recognised by their first bytes or by their names. Pure; any thread.
#ifndef DCP_FORMAT_FILE_FOREIGN_FILE_H_
#define DCP_FORMAT_FILE_FOREIGN_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// So many bytes of a file suffice to recognise it.
inline constexpr size_t kForeignHeadBytes = 512;

// "a GGUF file of llama.cpp, ...", with the way out, by the first bytes of a
// file; empty if they are not known.
std::string ForeignContent(absl::string_view head);

// The same by the name of a file; empty for other names.
std::string ForeignName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_FILE_FOREIGN_FILE_H_
