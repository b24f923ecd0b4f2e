// SPDX-License-Identifier: Apache-2.0
// MapText: the positions of one map's keys and values in a YAML or JSON text,
// so that an edit changes only these bytes. This is not a parser: it is for a
// text that ParseDocument has accepted. In unusual layouts (anchors, keys with
// a question mark) the result may be wrong or nothing, so a caller that edits
// has to read the result again. Pure; any thread.
#ifndef CONFIG_TO_FSDP2_MAP_TEXT_H_
#define CONFIG_TO_FSDP2_MAP_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace fsdp::config {

// A range of bytes in the text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;

  absl::string_view In(absl::string_view text) const {
    return text.substr(begin, end - begin);
  }
};

struct EntryText {
  std::string name;  // the key without quotes
  TextSpan key;      // with quotes
  // Empty if the key has none. For a value on separate lines: those lines.
  TextSpan value;
  // In braces: from the key to the value's end. Otherwise: the lines with their
  // ends.
  TextSpan whole;
};

struct MapText {
  bool in_braces = false;
  // Comments stand between the braces.
  bool has_comments = false;
  size_t indent = 0;  // spaces before each key, without braces
  std::vector<EntryText> entries;

  const EntryText* Find(absl::string_view name) const;
};

// The map under the path's keys; nothing if it is not found, or if the value is
// not a map that is written out there.
std::optional<MapText> FindMapText(absl::string_view text,
                                   absl::Span<const absl::string_view> path);

// A scalar without quotes; escapes stay.
absl::string_view WithoutQuotes(absl::string_view scalar);

}  // namespace fsdp::config

#endif  // CONFIG_TO_FSDP2_MAP_TEXT_H_
