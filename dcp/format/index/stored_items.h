// SPDX-License-Identifier: Apache-2.0
// StoredItems: an index's storage_data, from which each chunk gets the item at
// its offset. Used by one thread.
#ifndef DCP_FORMAT_INDEX_STORED_ITEMS_H_
#define DCP_FORMAT_INDEX_STORED_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/format/index/metadata_objects.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

class StoredItems {
 public:
  using SizeId = MetadataObjects::SizeId;

  // `objects` must outlive this.
  explicit StoredItems(MetadataObjects& objects) : objects_(objects) {}

  // Reads the table. `entries` are the numbers of the listed names; items with
  // other names are left out.
  absl::Status Read(
      const Value& table,
      const absl::flat_hash_map<absl::string_view, uint32_t>& entries);

  // The files of the items. StorageInfo::file is an index among them.
  std::vector<std::string> TakeFiles() { return std::move(files_); }

  // Take finds the items of this entry from now on. Called for each entry, in
  // order.
  void BeginEntry(uint32_t entry);
  // Finds the item at `offset`, which is kNoSize for a bytes entry. Chunks
  // without elements may share an offset, as empty shards from several ranks
  // do, because no bytes are ever read for them.
  absl::Status Take(SizeId offset, bool holds_elements, StorageInfo& info);

 private:
  // Chunks find an item by entry and offset; the index in a MetadataIndex is
  // only a hint.
  struct Stored {
    uint32_t entry;
    SizeId offset;
    MetadataObjects::InfoId info;
    bool used = false;  // by a chunk with elements
  };
  static bool ComesBefore(const Stored& a, const Stored& b);

  void AddFile(uint32_t file);

  MetadataObjects& objects_;
  std::vector<Stored> stored_;  // sorted by entry and offset
  std::vector<std::string> files_;
  std::vector<uint32_t> listed_file_;  // by index in objects_.files()
  absl::Span<Stored> current_;         // the current entry's
  size_t next_ = 0;                    // the next entry's first
};

}  // namespace dcp

#endif  // DCP_FORMAT_INDEX_STORED_ITEMS_H_
