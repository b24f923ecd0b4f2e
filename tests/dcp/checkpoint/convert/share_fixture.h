// SPDX-License-Identifier: Apache-2.0
// For tests of workers that share a conversion: a model on a simulated disk,
// conversions of it, workers, and the files that they leave. Used by one thread
// at a time, except for Work.
#ifndef TESTS_DCP_CHECKPOINT_CONVERT_SHARE_FIXTURE_H_
#define TESTS_DCP_CHECKPOINT_CONVERT_SHARE_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {

inline constexpr absl::string_view kModel = "/model";
inline constexpr absl::string_view kOther = "/other";
inline constexpr absl::string_view kPlace = "/place";  // of the destination

inline absl::Status SaveModel(FileSystem& fs, absl::string_view path,
                              uint64_t seed) {
  SampleState state;
  state.Add(SampleTensor("a.weight", DType::kFloat32, {7, 35}, seed));
  state.Add(SampleTensor("b.weight", DType::kBFloat16, {40, 30}, seed));
  state.Add(SampleTensor("c.weight", DType::kFloat32, {30, 9}, seed));
  state.Add(SampleTensor("d.bias", DType::kInt8, {13}, seed));
  state.Add(SampleTensor("scalar", DType::kInt64, {}, seed));
  SingleProcessCoordinator coordinator;
  return Save(fs, path, state.state(), coordinator,
              {.memory_bytes = kMinMemoryBytes});
}

struct Scenario {
  std::string name;
  std::string dst;  // in kPlace
  bool overwrite = false;
  std::optional<Format> to = std::nullopt;
  std::string mesh = "";
  uint64_t max_shard_bytes = 0;
  std::vector<std::string> casts = {};
  int column = -1;  // the dimension that the mesh cuts, unless it is 0
  uint64_t piece_bytes = 700;
  std::string root = "";  // the beginning of all paths
  std::optional<Dialect> to_dialect = std::nullopt;
  std::shared_ptr<const MapSpec> map = nullptr;

  std::string path() const { return absl::StrCat(root, kPlace, "/", dst); }
};

inline void PrintTo(const Scenario& scenario, std::ostream* os) {
  *os << scenario.name;
}

inline ConvertOptions OptionsOf(const Scenario& scenario) {
  ConvertOptions options;
  options.open.map = scenario.map;
  options.to = scenario.to;
  options.to_dialect = scenario.to_dialect;
  options.overwrite = scenario.overwrite;
  options.max_shard_bytes = scenario.max_shard_bytes;
  options.selection.casts = scenario.casts;
  options.memory_bytes = kMinMemoryBytes;
  options.num_lanes = 1;
  if (!scenario.mesh.empty()) {
    options.mesh = *ParseMesh(scenario.mesh);
  }
  if (scenario.column >= 0) {
    options.placements.push_back({.glob = "*.weight",
                                  .placements = *ParsePlacements(absl::StrCat(
                                      "S(", scenario.column, ")"))});
  }
  return options;
}

// A disk with the model, and with the destination's earlier content.
inline void Prepare(const Scenario& scenario, FileSystem& fs) {
  const std::string other = absl::StrCat(scenario.root, kOther);
  ASSERT_OK(SaveModel(fs, absl::StrCat(scenario.root, kModel), 1));
  ASSERT_OK(SaveModel(fs, other, 2));
  ASSERT_OK(fs.MakeDirectory(kPlace));
  if (scenario.overwrite) {
    ASSERT_OK(
        ConvertCheckpoint(fs, other, scenario.path(), OptionsOf(scenario)));
  }
  ASSERT_OK(fs.SyncDirectory(kPlace));
  ASSERT_OK(fs.SyncDirectory("/"));
}

inline absl::StatusOr<ShareResult> Work(FileSystem& fs,
                                        const Scenario& scenario,
                                        uint32_t index, uint32_t count) {
  return ConvertShare(fs, absl::StrCat(scenario.root, kModel), scenario.path(),
                      OptionsOf(scenario),
                      {.share = {.index = index, .count = count},
                       .piece_bytes = scenario.piece_bytes});
}

inline void AllWork(FileSystem& fs, const Scenario& scenario, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_OK_AND_ASSIGN(const ShareResult result,
                         Work(fs, scenario, i, count));
    if (i + 1 == count) EXPECT_TRUE(result.is_complete);
  }
}

using Tree = std::map<std::string, std::string>;

inline void ReadTree(FileSystem& fs, const std::string& directory,
                     const std::string& prefix, Tree& tree) {
  ASSERT_OK_AND_ASSIGN(const std::vector<DirectoryEntry> entries,
                       fs.List(directory));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = JoinPath(directory, entry.name);
    const std::string name = absl::StrCat(prefix, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      tree[name] = "directory";
      ReadTree(fs, path, absl::StrCat(name, "/"), tree);
    } else {
      ASSERT_OK_AND_ASSIGN(tree[name], ReadFile(fs, path, UINT64_MAX, false));
    }
  }
}

// Everything at the destination, apart from the mark of who made it.
inline Tree Place(FileSystem& fs, absl::string_view root = "") {
  Tree tree;
  ReadTree(fs, absl::StrCat(root, kPlace), "", tree);
  std::erase_if(tree, [](const auto& file) {
    return file.first.starts_with('.') && absl::EndsWith(file.first, ".done") &&
           absl::StartsWith(file.second, "tessera-done 1 ");
  });
  return tree;
}

// The data files of a DCP checkpoint, whatever their names, by their digests.
inline std::multiset<uint64_t> DataOf(const Tree& tree) {
  std::multiset<uint64_t> data;
  for (const auto& [name, bytes] : tree) {
    if (absl::EndsWith(name, ".distcp"))
      data.insert(Xxh3Digest(AsBytes(bytes)));
  }
  return data;
}

// A machine that dies while a lock ends leaves the lock file, which nobody
// holds.
inline void RemoveLocks(FileSystem& fs, const Scenario& scenario) {
  for (const std::string& path :
       {scenario.path() + "/.writer.lock",
        absl::StrCat(kPlace, "/.", scenario.dst, ".lock")}) {
    fs.Remove(path).IgnoreError();
  }
}

// The files that one worker makes of the scenario.
inline Tree Expected(const Scenario& scenario) {
  SimStorage fs;
  Prepare(scenario, fs);
  AllWork(fs, scenario, 1);
  return Place(fs);
}

inline void ExpectSame(FileSystem& fs, const Tree& expected,
                       absl::string_view root = "") {
  const Tree found = Place(fs, root);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : found) names.push_back(name);
  std::vector<std::string> expected_names;
  for (const auto& [name, bytes] : expected) expected_names.push_back(name);
  ASSERT_EQ(names, expected_names);
  for (const auto& [name, bytes] : expected) {
    EXPECT_TRUE(found.at(name) == bytes) << name;
  }
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_CHECKPOINT_CONVERT_SHARE_FIXTURE_H_
