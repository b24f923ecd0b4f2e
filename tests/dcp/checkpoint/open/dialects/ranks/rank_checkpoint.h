// SPDX-License-Identifier: Apache-2.0
// RankCheckpoint: a directory with torch.save files under construction, one for
// each rank. For tests only; one thread.
#ifndef TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_RANK_CHECKPOINT_H_
#define TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_RANK_CHECKPOINT_H_

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/value/value.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

class RankCheckpoint {
 public:
  ValueArena& arena() { return arena_; }

  // Adds the file `name`, which holds `root`; the storages "0", "1", ... are
  // `storages`.
  void Add(std::string name, const Value& root,
           const std::vector<std::string>& storages) {
    files_.emplace_back(std::move(name), TorchArchiveBytes(root, storages));
  }
  void Clear() { files_.clear(); }

  // Writes the files to a folder that is empty otherwise; returns the path.
  std::string Write(const TempDir& dir) const {
    const std::string path = dir.Join("ranks");
    std::filesystem::remove_all(path);
    for (const auto& [name, bytes] : files_) {
      dir.WriteFile(absl::StrCat("ranks/", name), bytes);
    }
    return path;
  }

 private:
  ValueArena arena_;
  std::vector<std::pair<std::string, std::string>> files_;
};

// The checkpoint's losses, as one text; empty if there are none.
inline std::string WarningText(const Checkpoint& checkpoint) {
  return absl::StrJoin(LossTexts(checkpoint.losses()), "; ");
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_OPEN_DIALECTS_RANKS_RANK_CHECKPOINT_H_
