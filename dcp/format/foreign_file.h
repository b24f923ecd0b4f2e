// What a file is that no opener here reads, and what to do with it instead:
// recognised by its first bytes or by its name, for error messages. Pure; any
// thread.
#ifndef DCP_FORMAT_FOREIGN_FILE_H_
#define DCP_FORMAT_FOREIGN_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// As many first bytes of a file as tell what it is.
inline constexpr size_t kForeignHeadBytes = 512;

// "a GGUF file of llama.cpp, ...", with the way out, by the first bytes of a
// file; empty if they are not known.
std::string ForeignContent(absl::string_view head);

// The same by the name of a file; empty for other names.
std::string ForeignName(absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_FOREIGN_FILE_H_
