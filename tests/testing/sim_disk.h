// SPDX-License-Identifier: Apache-2.0
// SimDisk: a file system that can crash. For every file and directory it keeps
// the state that the running system sees and the durable state, and Crash()
// drops a random part of the difference. Pure state without faults, handles or
// threads; SimStorage implements FileSystem on top of it.
//
// Data becomes durable in pages of 4 KiB: after a crash each page written since
// the file's last sync may be kept or lost, and the size may be the old or the
// new one. Directory changes are atomic; unsynced ones survive as Survival
// says.

#ifndef TESTS_TESTING_SIM_DISK_H_
#define TESTS_TESTING_SIM_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"

namespace dcp::testing {

// Which unsynced directory changes a crash keeps.
enum class Survival {
  kPrefix,  // only the first few, like a journal
  kSubset,  // any, if all earlier ones on the same name survive
};

class SimDisk {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  struct Node;
  // Shared by the directory entries, the open handles and the changes that are
  // not durable yet.
  using NodePtr = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePtr>;

  struct Node {
    bool is_directory = false;
    uint64_t number = 0;  // no other node of the disk has it
    std::vector<uint8_t> data;
    std::vector<uint8_t> durable_data;
    std::set<uint64_t> dirty_pages;
    Entries entries;
    Entries durable_entries;
  };

  // A directory entry: a name in a directory, whether it exists or not.
  struct Dentry {
    NodePtr directory;
    std::string name;
    NodePtr node() const {
      const auto entry = directory->entries.find(name);
      return entry == directory->entries.end() ? nullptr : entry->second;
    }
  };

  // Makes `dentry` lead to `node`, or to nothing.
  struct Change {
    Dentry dentry;
    NodePtr node;
  };

  SimDisk();

  // Paths begin at the root, with or without a slash. Null or nullopt if
  // nothing exists there, or no directory can hold the name.
  NodePtr Find(absl::string_view path) const;
  std::optional<Dentry> FindDentry(absl::string_view path) const;

  NodePtr NewNode(bool is_directory);

  // Applies all changes at once; after a crash, all or none survive.
  void Apply(std::vector<Change> changes);
  static void Write(Node& file, uint64_t offset, ByteSpan bytes);
  static void Resize(Node& file, uint64_t size);
  static void SyncFile(Node& file);
  void SyncDirectory(const Node& directory);

  // Bytes in all files that have a name, in whole pages.
  uint64_t UsedBytes() const;

  // Afterwards, the remaining state is durable, and the running system sees it.
  void Crash(Survival survival, std::mt19937_64& random);

 private:
  using Changes = std::vector<Change>;

  static void ApplyDurably(const Changes& changes);
  void KeepSome(Survival survival, std::mt19937_64& random);

  uint64_t num_nodes_ = 0;  // that were ever made
  NodePtr root_;
  std::vector<Changes> pending_;  // not durable, oldest first
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SIM_DISK_H_
