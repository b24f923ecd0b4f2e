// SPDX-License-Identifier: Apache-2.0
// ArchiveEditor: changes one value in a torch.save file that a program wrote.
// For tests only; one thread; steps that cannot fail in a sound test use
// DCP_CHECK.
#ifndef TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_ARCHIVE_EDITOR_H_
#define TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_ARCHIVE_EDITOR_H_

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/format/value/value_lookup.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

class ArchiveEditor {
 public:
  explicit ArchiveEditor(std::string path)
      : path_(std::move(path)), bytes_(ReadFile(path_)) {
    const MemoryItem item(bytes_);
    auto read = ReadTorchArchive(item.length(), /*allow_legacy=*/false, item);
    DCP_CHECK(read.ok(), path_, ": ", read.status().message());
    archive_ = *std::move(read);
  }

  ValueArena& arena() { return archive_.arena; }
  const Value& root() const { return archive_.root; }

  // The value below the keys.
  Value At(const std::vector<std::string>& keys) const {
    Value value = archive_.root;
    for (const std::string& key : keys) {
      const auto found = FindKey(value, key);
      DCP_CHECK(found.has_value(), path_, " has no ", key);
      value = *found;
    }
    return value;
  }

  // Sets the last of the keys.
  void Set(std::vector<std::string> keys, Value value) {
    const std::string last = keys.back();
    keys.pop_back();
    arena().Update(At(keys), {arena().Str(last), value});
  }
  void SetRoot(Value root) { archive_.root = root; }

  // Writes the file again, with the same storages.
  void Save() {
    std::vector<std::string> storages;
    for (size_t i = 0; i < archive_.storages.size(); ++i) {
      const TorchArchive::Storage& storage =
          archive_.storages.at(absl::StrCat(i));
      storages.push_back(bytes_.substr(storage.payload_offset, storage.size));
    }
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        << TorchArchiveBytes(archive_.root, storages);
  }

 private:
  const std::string path_;
  const std::string bytes_;
  TorchArchive archive_;
};

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_ARCHIVE_EDITOR_H_
