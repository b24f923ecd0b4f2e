// SPDX-License-Identifier: Apache-2.0
// Many files in a store are read at the same time.
#include <map>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/recorded_digests.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/waiting_store.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::dcp::testing::WaitingStore;

struct Layout {
  const char* golden;
  const char* held;  // in the paths of files
  int num_files;
  bool finds_sizes = false;
};

class StoreOpening : public ::testing::TestWithParam<Layout> {};

TEST_P(StoreOpening, ReadsFilesOfADialectAtTheSameTime) {
  const TempDir dir;
  const std::string path =
      CopyGolden(dir, absl::StrCat("dialects/", GetParam().golden));
  WaitingStore store(
      Disk(),
      [](absl::string_view file) {
        return absl::StrContains(file, GetParam().held);
      },
      GetParam().num_files);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> opened,
                       Checkpoint::Open(store, path, {}));
  EXPECT_EQ(store.most_reads(), GetParam().num_files);
  if (GetParam().finds_sizes) {
    EXPECT_EQ(store.most_stats(), GetParam().num_files);
  }
  // In the files' order all the same.
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> one_by_one,
                       OpenCheckpoint(path));
  ASSERT_EQ(opened->entries().size(), one_by_one->entries().size());
  for (size_t i = 0; i < opened->entries().size(); ++i) {
    EXPECT_EQ(opened->entries()[i].fqn, one_by_one->entries()[i].fqn);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllLayouts, StoreOpening,
    ::testing::Values(
        Layout{"deepspeed/zero1_ws2", "_states.pt", 3},
        Layout{"fsdp1/pickle_sharded_ws3", "rank_", 3},
        Layout{"verl/verl_fsdp2_hsdp_2x2", "_rank_", 12},
        Layout{"accelerate/accelerate_fsdp2_sharded_ws2", "random_states", 2},
        Layout{"bytecheckpoint/fsdp2_ws2", "extra_state_rank", 2},
        Layout{"torchsnapshot/unbatched_ws1", "param_groups", 3, true}),
    [](const ::testing::TestParamInfo<Layout>& info) {
      std::string name = info.param.golden;
      for (char& c : name) c = absl::ascii_isalnum(c) ? c : '_';
      return name;
    });

TEST(StoreOpening, ReadsManyShardsOfAModelAtTheSameTime) {
  const TempDir dir;
  constexpr int kNumShards = 40;
  ValueArena arena;
  for (int i = 0; i < kNumShards; ++i) {
    dir.WriteFile(
        absl::StrFormat("m/pytorch_model-%05d-of-%05d.bin", i + 1, kNumShards),
        TorchArchiveBytes(
            arena.Dict({arena.Str(absl::StrCat("w", i)),
                        MakeTensor(arena, DType::kUInt8, {2}, false, "0")}),
            {"hi"}));
  }
  WaitingStore store(
      Disk(),
      [](absl::string_view file) {
        // The first file shows the format.
        return absl::EndsWith(file, ".bin") &&
               !absl::StrContains(file, "model-00001-");
      },
      kFilesAtOnce - 1);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> opened,
                       Checkpoint::Open(store, dir.Join("m"), {}));
  EXPECT_EQ(opened->entries().size(), size_t{kNumShards});
  EXPECT_GE(store.most_reads(), static_cast<int>(kFilesAtOnce) - 1);
  EXPECT_LE(store.most_reads(), static_cast<int>(kFilesAtOnce));
}

TEST(StoreOpening, ReadsTheIndicesAndDigestsOfRanksAtTheSameTime) {
  const TempDir dir;
  constexpr int kNumRanks = 8;
  for (int64_t rank = 0; rank < kNumRanks; ++rank) {
    DcpBuilder builder;
    builder.StartFile(absl::StrCat("__", rank, "_0.distcp"));
    builder.AddTensor(absl::StrCat("w", rank), DType::kUInt8, {2}, "xy");
    const std::string save_id = absl::StrFormat("%016x", rank);
    builder.metadata().save_id = save_id;
    dir.WriteFile(JoinPath("c", DigestsName(save_id)), WriteDigests({}));
    builder.Write(dir, "c", RankMetadataName(rank));
  }
  WaitingStore store(
      Disk(),
      [](absl::string_view file) { return absl::EndsWith(file, ".metadata"); },
      kNumRanks);
  ASSERT_OK(Checkpoint::Open(store, dir.Join("c"), {}));
  EXPECT_EQ(store.most_reads(), kNumRanks);
  WaitingStore with_digests(
      Disk(),
      [](absl::string_view file) {
        return absl::StrContains(file, DigestsName("0"));
      },
      kNumRanks);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> opened,
                       Checkpoint::Open(with_digests, dir.Join("c"), {}));
  ASSERT_OK(opened->ReadRecordedDigests());
  EXPECT_EQ(with_digests.most_reads(), kNumRanks);
}

}  // namespace
}  // namespace dcp
