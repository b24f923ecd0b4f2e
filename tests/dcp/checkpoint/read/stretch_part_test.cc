// SPDX-License-Identifier: Apache-2.0
// Parts of stretches alone, and workers that share a conversion in which no
// worker reads a tensor as a whole.
#include "dcp/checkpoint/read/stretch_part.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/checksum.h"
#include "dcp/base/crc32_pieces.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/share/share_convert.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StretchCells, WholeCellsAddUpToTheCrcInAnyOrder) {
  std::mt19937 random(7);
  std::string text(5 * kCheckedCellBytes / 2, '\0');
  for (char& c : text) c = static_cast<char>(random());
  const ByteSpan bytes = AsBytes(text);
  // Cuts at cells, next to them, and elsewhere.
  std::vector<uint64_t> cuts = {0,
                                1,
                                kCheckedCellBytes - 1,
                                kCheckedCellBytes,
                                kCheckedCellBytes + 1,
                                2 * kCheckedCellBytes,
                                text.size() - 1,
                                text.size()};
  for (int i = 0; i < 5; ++i) cuts.push_back(random() % text.size());
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::pair<uint64_t, uint64_t>> pieces;
  for (size_t i = 1; i < cuts.size(); ++i) {
    pieces.emplace_back(cuts[i - 1], cuts[i] - cuts[i - 1]);
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  StretchCells cells;
  for (const auto& [begin, length] : pieces) {
    EXPECT_LT(cells.Whole(text.size()).size(), 3u);
    for (const StretchCells::Piece& piece :
         StretchCells::Cut(begin, bytes.subspan(begin, length), text.size())) {
      cells.Add(piece);
    }
  }
  Crc32Pieces sum;
  ASSERT_EQ(cells.Whole(text.size()).size(), 3u);
  for (const auto& [cell, contribution] : cells.Whole(text.size())) {
    sum.Add(contribution);
  }
  EXPECT_EQ(sum.Value(text.size()), ExtendCrc32(0, bytes));
}

// Two tensors, each cut by the mesh into one file per worker.
class SharedStretches : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr uint32_t kWorkers = 4;
  static constexpr uint64_t kTensorBytes = uint64_t{9} << 20;

  SharedStretches() {
    SampleState state;
    state.Add(SampleTensor("a", DType::kFloat32, {2304, 1024}, 1));
    state.Add(SampleTensor("b", DType::kFloat32, {2304, 1024}, 2));
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(fs_, "/dcp", state.state(), coordinator, {}));
    if (source() != "/dcp") {
      EXPECT_OK(ConvertCheckpoint(fs_, "/dcp", source(), {}));
    }
  }

  std::string source() const { return GetParam(); }
  bool has_digests() const { return source() == "/one.safetensors"; }

  absl::StatusOr<ShareResult> Work(uint32_t index) {
    ConvertOptions options;
    options.to = Format::kDcp;
    options.mesh = *ParseMesh(absl::StrCat("shard=", kWorkers));
    options.stats = &stats_;
    return ConvertShare(
        fs_, source(), "/out", std::move(options),
        {.share = {.index = index, .count = kWorkers}, .piece_bytes = 1 << 20});
  }

  // In the second tensor's middle.
  std::string FlipBit() {
    std::string path = source();
    if (source() == "/dcp") {
      const absl::StatusOr<std::vector<DirectoryEntry>> entries =
          fs_.List(source());
      EXPECT_OK(entries);
      for (const DirectoryEntry& entry : *entries) {
        if (absl::EndsWith(entry.name, ".distcp")) path += "/" + entry.name;
      }
    }
    absl::StatusOr<std::string> bytes =
        ReadFile(fs_, path, UINT64_MAX, /*follow_symlinks=*/false);
    EXPECT_OK(bytes);
    (*bytes)[kTensorBytes + kTensorBytes / 2] ^= 1;
    EXPECT_OK(fs_.Remove(path));
    EXPECT_OK(WriteFile(fs_, path, *bytes));
    return path;
  }

  SimStorage fs_;
  TransferStats stats_;
};

TEST_P(SharedStretches, AreReadOnceAndFullyChecked) {
  std::optional<ShareResult> last;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    absl::StatusOr<ShareResult> result = Work(i);
    ASSERT_OK(result);
    last = *std::move(result);
  }
  ASSERT_TRUE(last->is_complete);
  const SourceCheckReport& check = last->plan.check;
  EXPECT_EQ(check.num_items_unchecked, 0u);
  EXPECT_EQ(has_digests() ? check.num_digests_checked : check.num_crcs_checked,
            2u);
  // Workers read the cells that they begin to the end. One worker reads items
  // with only a digest, once for the CRC-32 and once for the digest.
  const uint64_t model = 2 * kTensorBytes;
  const uint64_t most = model + model / 2 + (has_digests() ? 2 * model : 0);
  EXPECT_LE(stats_.bytes_read, most);
  ASSERT_OK_AND_ASSIGN(const DiffReport diff,
                       DiffCheckpoints(fs_, "/dcp", "/out", {}));
  EXPECT_TRUE(diff.findings.empty());
}

TEST_P(SharedStretches, FindAFlippedBit) {
  const std::string path = FlipBit();
  absl::Status status;
  for (uint32_t i = 0; i < kWorkers && status.ok(); ++i) {
    status = Work(i).status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("b: "), HasSubstr(path))));
  EXPECT_FALSE(fs_.Stat("/out/.metadata").ok());
  // The next run reads it again, and finds the same.
  status = absl::OkStatus();
  for (uint32_t i = 0; i < kWorkers && status.ok(); ++i) {
    status = Work(i).status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
}

// The size and the time stay the same, so that all workers have one plan.
TEST_P(SharedStretches, FindAFileRewrittenBetweenWorkers) {
  absl::Status status = Work(0).status();
  ASSERT_OK(status);
  FlipBit();
  for (uint32_t i = 1; i < kWorkers && status.ok(); ++i) {
    status = Work(i).status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("b: ")));
  EXPECT_FALSE(fs_.Stat("/out/.metadata").ok());
}

INSTANTIATE_TEST_SUITE_P(Sources, SharedStretches,
                         ::testing::Values("/dcp", "/one.safetensors"),
                         [](const auto& source) {
                           return source.index == 0 ? "Crcs" : "Digests";
                         });

}  // namespace
}  // namespace dcp
