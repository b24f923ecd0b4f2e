// SPDX-License-Identifier: Apache-2.0
// DestinationPath: the path that a checkpoint is written to, parsed once: its
// parent, the name, and the format that the suffix says. It does not look at
// the disk, and "-" is an ordinary name. Plain data; any thread.
#ifndef DCP_CHECKPOINT_DESTINATION_DESTINATION_PATH_H_
#define DCP_CHECKPOINT_DESTINATION_DESTINATION_PATH_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/format.h"

namespace dcp {

class DestinationPath {
 public:
  DestinationPath() : DestinationPath("") {}
  // Implicit, so that callers may give a text.
  // NOLINTBEGIN(google-explicit-constructor)
  DestinationPath(absl::string_view text);
  DestinationPath(const std::string& text)
      : DestinationPath(absl::string_view(text)) {}
  DestinationPath(const char* text)
      : DestinationPath(absl::string_view(text)) {}
  // NOLINTEND(google-explicit-constructor)

  // As the user wrote it, for messages.
  const std::string& text() const { return text_; }
  // Without slashes at the end.
  const std::string& path() const { return path_; }
  // The directory that it is in; "." for a name alone.
  const std::string& parent() const { return parent_; }
  const std::string& name() const { return name_; }
  // That of a single file with this suffix; nullopt for any other path.
  std::optional<Format> format() const { return format_; }
  // The suffix of a file name, such as "gguf"; empty for directory names, such
  // as "llama-3.1-8b", "run.5" or "model.v2".
  absl::string_view suffix() const;

 private:
  std::string text_;
  std::string path_;
  std::string parent_;
  std::string name_;
  std::optional<Format> format_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DESTINATION_DESTINATION_PATH_H_
