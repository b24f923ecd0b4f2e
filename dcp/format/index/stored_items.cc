// SPDX-License-Identifier: Apache-2.0
// Tested by tests/dcp/format/index/dcp_metadata_test.cc.
#include "dcp/format/index/stored_items.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

constexpr uint32_t kNotListed = std::numeric_limits<uint32_t>::max();

}  // namespace

bool StoredItems::ComesBefore(const Stored& a, const Stored& b) {
  return std::pair(a.entry, a.offset) < std::pair(b.entry, b.offset);
}

absl::Status StoredItems::Read(
    const Value& table,
    const absl::flat_hash_map<absl::string_view, uint32_t>& entries) {
  if (!IsMapping(table)) return WrongType("storage_data", table);
  const absl::Span<const Value> items = table.items();
  stored_.reserve(items.size() / 2);
  // Each name is looked up only once.
  std::vector<std::optional<uint32_t>> entry_by_name;
  for (size_t i = 0; i < items.size(); i += 2) {
    DCP_ASSIGN_OR_RETURN(const MetadataObjects::Key key,
                         objects_.ReadKey(items[i]));
    while (entry_by_name.size() <= key.name) {
      const auto next =
          static_cast<MetadataObjects::NameId>(entry_by_name.size());
      const auto listed = entries.find(objects_.name(next));
      entry_by_name.push_back(listed == entries.end()
                                  ? std::nullopt
                                  : std::optional(listed->second));
    }
    const std::optional<uint32_t> entry = entry_by_name[key.name];
    if (!entry.has_value()) continue;
    const absl::StatusOr<MetadataObjects::InfoId> info =
        objects_.ReadInfo(items[i + 1]);
    if (!info.ok()) {
      return Annotate(info.status(), "storage of ",
                      Short(objects_.name(key.name)));
    }
    AddFile(objects_.info(*info).file);
    stored_.push_back({.entry = *entry, .offset = key.offset, .info = *info});
  }
  std::sort(stored_.begin(), stored_.end(), ComesBefore);
  const auto twice = std::adjacent_find(
      stored_.begin(), stored_.end(),
      [](const Stored& a, const Stored& b) { return !ComesBefore(a, b); });
  if (twice == stored_.end()) return absl::OkStatus();
  const auto named = std::find_if(
      entries.begin(), entries.end(),
      [&](const auto& listed) { return listed.second == twice->entry; });
  return absl::DataLossError(absl::StrCat("storage of ", Short(named->first),
                                          ": the same offset occurs twice"));
}

// Adds the file to `files_`, which has only the files of listed names.
void StoredItems::AddFile(uint32_t file) {
  if (file >= listed_file_.size()) listed_file_.resize(file + 1, kNotListed);
  if (listed_file_[file] != kNotListed) return;
  listed_file_[file] = static_cast<uint32_t>(files_.size());
  files_.push_back(objects_.files()[file]);
}

void StoredItems::BeginEntry(uint32_t entry) {
  const size_t first = next_;
  while (next_ < stored_.size() && stored_[next_].entry == entry) ++next_;
  current_ = absl::MakeSpan(stored_).subspan(first, next_ - first);
}

absl::Status StoredItems::Take(SizeId offset, bool holds_elements,
                               StorageInfo& info) {
  const auto it = std::lower_bound(
      current_.begin(), current_.end(), offset,
      [](const Stored& item, SizeId id) { return item.offset < id; });
  if (it == current_.end() || it->offset != offset) {
    return absl::DataLossError("storage_data has no entry for it");
  }
  if (holds_elements && it->used) {
    return absl::DataLossError("another chunk has the same offset");
  }
  info = objects_.info(it->info);
  info.file = listed_file_[info.file];
  if (holds_elements && info.length == 0) {
    return absl::DataLossError("its entry in storage_data has length 0");
  }
  it->used = it->used || holds_elements;
  return absl::OkStatus();
}

}  // namespace dcp
