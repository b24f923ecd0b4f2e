// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"

namespace dcp::testing {
namespace {

using Node = SimDisk::Node;
using Key = std::pair<const Node*, std::string>;

Key ChangeKey(const SimDisk::Change& change) {
  return {change.dentry.directory.get(), change.dentry.name};
}

void SetEntry(SimDisk::Entries& entries, const SimDisk::Change& change) {
  if (change.node == nullptr) {
    entries.erase(change.dentry.name);
  } else {
    entries[change.dentry.name] = change.node;
  }
}

void CopyPage(const std::vector<uint8_t>& src, uint64_t page,
              std::vector<uint8_t>& dst) {
  const uint64_t begin = page * SimDisk::kPageBytes;
  const uint64_t end =
      std::min<uint64_t>({begin + SimDisk::kPageBytes, src.size(), dst.size()});
  if (begin >= end) return;
  std::copy(src.begin() + static_cast<int64_t>(begin),
            src.begin() + static_cast<int64_t>(end),
            dst.begin() + static_cast<int64_t>(begin));
}

void CrashFile(Node& file, std::mt19937_64& random) {
  std::vector<uint8_t> left = file.durable_data;
  if (random() % 2 == 0) left.resize(file.data.size());
  for (const uint64_t page : file.dirty_pages) {
    if (random() % 2 == 0) CopyPage(file.data, page, left);
  }
  file.data = left;
  file.durable_data = std::move(left);
  file.dirty_pages.clear();
}

void CrashTree(Node& node, std::mt19937_64& random) {
  if (!node.is_directory) return CrashFile(node, random);
  node.entries = node.durable_entries;
  for (auto& [name, child] : node.entries) CrashTree(*child, random);
}

uint64_t UsedPageBytes(const Node& node) {
  uint64_t used = AlignUp(node.data.size(), SimDisk::kPageBytes);
  for (const auto& [name, child] : node.entries) used += UsedPageBytes(*child);
  return used;
}

}  // namespace

SimDisk::SimDisk() : root_(NewNode(/*is_directory=*/true)) {}

SimDisk::NodePtr SimDisk::NewNode(bool is_directory) {
  auto node = std::make_shared<Node>();
  node->number = ++num_nodes_;
  node->is_directory = is_directory;
  return node;
}

SimDisk::NodePtr SimDisk::Find(absl::string_view path) const {
  NodePtr node = root_;
  for (const absl::string_view part :
       absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    const auto entry = node->entries.find(std::string(part));
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

std::optional<SimDisk::Dentry> SimDisk::FindDentry(
    absl::string_view path) const {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const bool in_root = slash == absl::string_view::npos;
  NodePtr directory = in_root ? root_ : Find(path.substr(0, slash));
  if (directory == nullptr || !directory->is_directory) return std::nullopt;
  return Dentry{std::move(directory),
                std::string(in_root ? path : path.substr(slash + 1))};
}

void SimDisk::Apply(Changes changes) {
  for (const Change& change : changes) {
    SetEntry(change.dentry.directory->entries, change);
  }
  pending_.push_back(std::move(changes));
}

void SimDisk::ApplyDurably(const Changes& changes) {
  for (const Change& change : changes) {
    SetEntry(change.dentry.directory->durable_entries, change);
  }
}

void SimDisk::Write(Node& file, uint64_t offset, ByteSpan bytes) {
  if (bytes.empty()) return;
  const uint64_t end = offset + bytes.size();
  if (end > file.data.size()) Resize(file, end);
  std::copy(bytes.begin(), bytes.end(),
            file.data.begin() + static_cast<int64_t>(offset));
  for (uint64_t page = offset / kPageBytes; page * kPageBytes < end; ++page) {
    file.dirty_pages.insert(page);
  }
}

void SimDisk::Resize(Node& file, uint64_t size) {
  const uint64_t low = std::min<uint64_t>(file.data.size(), size);
  const uint64_t high = std::max<uint64_t>(file.data.size(), size);
  // Bytes that become zero are as little durable as written ones.
  for (uint64_t page = low / kPageBytes; page * kPageBytes < high; ++page) {
    file.dirty_pages.insert(page);
  }
  file.data.resize(size);
}

void SimDisk::SyncFile(Node& file) {
  file.durable_data.resize(file.data.size());
  for (const uint64_t page : file.dirty_pages) {
    CopyPage(file.data, page, file.durable_data);
  }
  file.dirty_pages.clear();
}

void SimDisk::SyncDirectory(const Node& directory) {
  // Goes from the newest change to the oldest, and makes durable the
  // directory's changes, and earlier ones to the same names.
  std::set<Key> keys;
  std::vector<bool> kept(pending_.size());
  for (size_t i = pending_.size(); i-- > 0;) {
    for (const Change& change : pending_[i]) {
      kept[i] = kept[i] || change.dentry.directory.get() == &directory ||
                keys.count(ChangeKey(change)) > 0;
    }
    if (!kept[i]) continue;
    for (const Change& change : pending_[i]) keys.insert(ChangeKey(change));
  }
  std::vector<Changes> rest;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (kept[i]) {
      ApplyDurably(pending_[i]);
    } else {
      rest.push_back(std::move(pending_[i]));
    }
  }
  pending_ = std::move(rest);
}

uint64_t SimDisk::UsedBytes() const { return UsedPageBytes(*root_); }

void SimDisk::KeepSome(Survival survival, std::mt19937_64& random) {
  const size_t prefix = random() % (pending_.size() + 1);
  std::set<Key> dropped;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const Changes& changes = pending_[i];
    const bool kept =
        survival == Survival::kPrefix
            ? i < prefix
            : random() % 2 == 0 &&
                  std::none_of(changes.begin(), changes.end(),
                               [&](const Change& change) {
                                 return dropped.count(ChangeKey(change)) > 0;
                               });
    if (kept) {
      ApplyDurably(changes);
    } else {
      for (const Change& change : changes) dropped.insert(ChangeKey(change));
    }
  }
  pending_.clear();
}

void SimDisk::Crash(Survival survival, std::mt19937_64& random) {
  KeepSome(survival, random);
  CrashTree(*root_, random);
}

}  // namespace dcp::testing
