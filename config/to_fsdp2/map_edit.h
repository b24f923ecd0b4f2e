// SPDX-License-Identifier: Apache-2.0
// MapEdit: changes entries in one map of a text and leaves every other byte
// unchanged: comments, order, quotes, line ends. Several maps of a text can be
// edited together, as long as none is inside an entry that another edit
// changes. For one thread.
#ifndef CONFIG_TO_FSDP2_MAP_EDIT_H_
#define CONFIG_TO_FSDP2_MAP_EDIT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/to_fsdp2/map_text.h"

namespace fsdp::config {

struct TextEdit {
  TextSpan span;  // the replaced text; empty: an insertion
  std::string text;
};
// Edits may come in any order, but must not overlap.
std::string ApplyEdits(absl::string_view text, std::vector<TextEdit> edits);

class MapEdit {
 public:
  // `text` must outlive this.
  MapEdit(absl::string_view text, MapText map);

  const MapText& map() const { return map_; }

  // Entries are named by their index in map(). A new name gets the old one's
  // quotes; a value is written as given.
  void Rename(size_t entry, absl::string_view name);
  void SetValue(size_t entry, absl::string_view value);
  // Lines that contain a comment are commented out instead of removed.
  void Remove(size_t entry);
  // Adds an entry after the last one that stays; the map must have had one.
  void Append(absl::string_view name, absl::string_view value);

  // The changes to apply to the text.
  std::vector<TextEdit> Edits() const;

 private:
  std::string KeyLike(absl::string_view old_key, absl::string_view name) const;
  std::string RemovedLines(const EntryText& entry) const;
  void RemoveLines(std::vector<TextEdit>& edits) const;
  void RemoveInBraces(std::vector<TextEdit>& edits) const;
  std::string GapBefore(const EntryText& entry) const;
  TextEdit InsertionInBraces(const EntryText& entry, bool is_after) const;
  TextEdit Insertion() const;

  absl::string_view text_;
  MapText map_;
  std::vector<bool> removed_;
  std::vector<TextEdit> changes_;
  std::vector<std::pair<std::string, std::string>> appended_;
};

}  // namespace fsdp::config

#endif  // CONFIG_TO_FSDP2_MAP_EDIT_H_
