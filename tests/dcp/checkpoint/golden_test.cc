// SPDX-License-Identifier: Apache-2.0
// Every checkpoint that PyTorch wrote, read and compared with the contents that
// PyTorch recorded.

#include "tests/testing/golden.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/tensor/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Canonical;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::GoldenCases;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::TempDir;

// Expects these contents and nothing else.
void ExpectHolds(Checkpoint& checkpoint, const GoldenCase& golden) {
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(checkpoint));
  EXPECT_EQ(loaded.size(), golden.tensors.size());
  std::map<std::string, std::string> objects;
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    if (const ObjectEntry* object = entry.object()) {
      objects[entry.fqn] = Canonical(object->value);
      continue;
    }
    SCOPED_TRACE(entry.fqn);
    const auto it = golden.tensors.find(entry.fqn);
    ASSERT_NE(it, golden.tensors.end());
    EXPECT_EQ(TorchName(entry.tensor()->dtype), it->second.dtype);
    EXPECT_EQ(entry.tensor()->shape, it->second.shape);
    EXPECT_EQ(absl::BytesToHexString(loaded[entry.fqn]),
              absl::BytesToHexString(it->second.bytes));
  }
  EXPECT_EQ(objects, golden.objects);
}

TEST(Golden, HasEveryVersionAndKind) {
  std::map<std::string, int> num_of_version;
  std::set<std::string> kinds;
  for (const GoldenCase& golden : GoldenCases()) {
    ++num_of_version[golden.name.substr(0, golden.name.find('/'))];
    kinds.insert(golden.kind);
  }
  EXPECT_THAT(num_of_version,
              ::testing::ElementsAre(
                  std::pair("torch-2.11", 7), std::pair("torch-2.15", 7),
                  std::pair("torch-2.2", 4), std::pair("torch-2.4", 4),
                  std::pair("torch-2.6", 4), std::pair("torch-2.9", 7)));
  EXPECT_THAT(kinds, ::testing::ElementsAre("dcp", "dcp-safetensors-items",
                                            "hf", "pt"));
}

TEST(Golden, EveryCheckpointHoldsWhatPyTorchSays) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenCheckpoint(CopyGolden(dir, golden.path)));
    ASSERT_OK(checkpoint->LocateAll());
    ExpectHolds(*checkpoint, golden);
  }
}

}  // namespace
}  // namespace dcp
