// SPDX-License-Identifier: Apache-2.0

#include "dcp/plan/pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/plan/random.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;

// Files like those in the formats.
struct Files {
  std::deque<FileLayout> layouts;
  std::vector<FileToCut> specs;

  FileLayout& Add(bool head_is_last = false) {
    layouts.emplace_back(absl::StrCat("file", layouts.size()));
    specs.push_back({.layout = &layouts.back(), .head_is_last = head_is_last});
    return layouts.back();
  }
};

// A header, then payloads back to back.
void AddSafetensors(testing::Random& random, Files& files) {
  FileLayout& layout = files.Add(/*head_is_last=*/true);
  const int64_t num_payloads = random.Uniform(0, 9);
  for (int64_t i = 0; i < num_payloads; ++i) {
    layout.Append(i == 0 ? 7 : 0, static_cast<uint64_t>(random.Uniform(1, 50)),
                  0);
  }
  if (num_payloads == 0) layout.Append(7, 0, 0);
}

// Each literal needs the payload before it, and the last one needs them all.
void AddTorch(testing::Random& random, Files& files) {
  FileLayout& layout = files.Add();
  const auto num_payloads = static_cast<uint32_t>(random.Uniform(0, 9));
  for (uint32_t i = 0; i < num_payloads; ++i) {
    layout.Append(3, static_cast<uint64_t>(random.Uniform(1, 50)), 0,
                  i == 0 ? kNeedsNoPart : i - 1);
  }
  layout.Append(9, 0, 0, num_payloads == 0 ? kNeedsNoPart : 0);
}

// Archives with one or more payloads back to back.
void AddDcp(testing::Random& random, Files& files) {
  FileLayout& layout = files.Add();
  for (int64_t item = random.Uniform(0, 6); item > 0; --item) {
    const auto first = static_cast<uint32_t>(layout.parts().size());
    const auto num_payloads = static_cast<uint32_t>(random.Uniform(0, 3));
    for (uint32_t i = 0; i < num_payloads; ++i) {
      layout.Append(4, static_cast<uint64_t>(random.Uniform(1, 50)), 0,
                    i == 0 ? kNeedsNoPart : first + i - 1);
    }
    layout.Append(5, 0, 0, num_payloads == 0 ? kNeedsNoPart : first);
  }
}

Files RandomFiles(testing::Random& random) {
  Files files;
  for (int64_t left = random.Uniform(0, 6); left > 0; --left) {
    switch (random.Uniform(0, 2)) {
      case 0:
        AddSafetensors(random, files);
        break;
      case 1:
        AddTorch(random, files);
        break;
      default:
        AddDcp(random, files);
    }
  }
  return files;
}

// For each file and byte, the number of pieces and missing literals with that
// byte.
std::vector<std::vector<int>> CountBytes(
    const Files& files, const std::vector<FilePiece>& pieces,
    const std::vector<MissingLiteral>& missing) {
  std::vector<std::vector<int>> counts;
  for (const FileLayout& layout : files.layouts) {
    counts.emplace_back(layout.size());
  }
  for (const FilePiece& piece : pieces) {
    for (uint64_t i = 0; i < piece.length; ++i) {
      ++counts[piece.file][piece.offset + i];
    }
  }
  for (const MissingLiteral& literal : missing) {
    const LayoutPart& part = files.layouts[literal.file].parts()[literal.part];
    for (uint64_t i = 0; i < part.literal_length; ++i) {
      ++counts[literal.file][part.offset + i];
    }
  }
  return counts;
}

// No literal in a piece may need bytes from another piece.
void ExpectSelfContained(const Files& files, const FilePiece& piece) {
  const FileToCut& spec = files.specs[piece.file];
  spec.layout->ForEachPiece(piece.offset, piece.length,
                            [&](size_t part, bool literal, uint64_t, uint64_t) {
                              EXPECT_GE(part, piece.first_part);
                              EXPECT_LT(part, piece.end_part);
                              if (!literal) return;
                              EXPECT_GE(spec.layout->parts()[part].needs_from,
                                        piece.first_part);
                              EXPECT_FALSE(part == 0 && spec.head_is_last);
                            });
}

TEST(Pieces, PiecesAndMissingLiteralsTileEveryFile) {
  testing::Random random;
  for (int round = 0; round < 300; ++round) {
    const Files files = RandomFiles(random);
    const auto piece_bytes = static_cast<uint64_t>(random.Uniform(1, 120));
    const std::vector<FilePiece> pieces =
        CutIntoPieces(files.specs, piece_bytes);
    for (const std::vector<int>& counts :
         CountBytes(files, pieces, LiteralsOutside(files.specs, pieces))) {
      EXPECT_EQ(std::count(counts.begin(), counts.end(), 1),
                static_cast<std::ptrdiff_t>(counts.size()));
    }
    std::vector<uint32_t> num_pieces(files.specs.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      ExpectSelfContained(files, pieces[i]);
      ++num_pieces[pieces[i].file];
      if (i > 0 && pieces[i].file == pieces[i - 1].file) {
        EXPECT_EQ(pieces[i].first_part, pieces[i - 1].end_part);
      }
    }
    for (const uint32_t of_file : num_pieces) EXPECT_GE(of_file, 1u);
  }
}

TEST(Pieces, SharesTileThePiecesForAnyNumberOfWorkers) {
  testing::Random random;
  for (int round = 0; round < 50; ++round) {
    const Files files = RandomFiles(random);
    const std::vector<FilePiece> pieces = CutIntoPieces(
        files.specs, static_cast<uint64_t>(random.Uniform(1, 120)));
    for (uint32_t count = 1; count <= 65; ++count) {
      std::vector<uint32_t> all;
      for (uint32_t index = 0; index < count; ++index) {
        for (const uint32_t piece : SharePieces(pieces, {index, count})) {
          all.push_back(piece);
        }
      }
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), pieces.size());
      for (uint32_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
    }
  }
}

TEST(Pieces, SharesDifferByAtMostOnePiece) {
  Files files;
  FileLayout& layout = files.Add();
  for (int i = 0; i < 1000; ++i) layout.Append(0, 10, 0);
  const std::vector<FilePiece> pieces = CutIntoPieces(files.specs, 10);
  ASSERT_EQ(pieces.size(), 1000u);
  for (const uint32_t count : {1u, 3u, 7u, 16u}) {
    for (uint32_t index = 0; index < count; ++index) {
      const size_t size = SharePieces(pieces, {index, count}).size();
      EXPECT_GE(size, 1000 / count);
      EXPECT_LE(size, 1000 / count + 1);
    }
  }
}

TEST(Pieces, AnArchiveIsCutBetweenItsItems) {
  Files files;
  FileLayout& layout = files.Add();
  for (uint32_t item = 0; item < 3; ++item) {
    layout.Append(4, 100, item);
    layout.Append(6, 0, 0, 2 * item);
  }
  EXPECT_THAT(
      CutIntoPieces(files.specs, 100),
      ElementsAre(FilePiece{0, 0, 2, 0, 110}, FilePiece{0, 2, 4, 110, 110},
                  FilePiece{0, 4, 6, 220, 110}));
}

TEST(Pieces, LiteralsThatNeedSeveralPiecesAreInNone) {
  Files files;
  FileLayout& torch = files.Add();
  torch.Append(4, 100, 0);
  torch.Append(6, 100, 1, 0);
  torch.Append(8, 0, 0, 0);
  FileLayout& safetensors = files.Add(/*head_is_last=*/true);
  safetensors.Append(5, 50, 2);
  const std::vector<FilePiece> pieces = CutIntoPieces(files.specs, 100);
  EXPECT_THAT(pieces, ElementsAre(FilePiece{0, 0, 1, 0, 104},
                                  FilePiece{0, 1, 3, 110, 100},
                                  FilePiece{1, 0, 1, 5, 50}));
  EXPECT_THAT(LiteralsOutside(files.specs, pieces),
              ElementsAre(MissingLiteral{0, 1}, MissingLiteral{0, 2},
                          MissingLiteral{1, 0}));
}

TEST(Pieces, ItemsAreCutInTheOrderOfTheFiles) {
  // Two at the same place, which are not sorted.
  const std::vector<StoredItem> items = {
      {1, 40, 60}, {0, 0, 30}, {0, 30, 30}, {1, 40, 60}, {2, 7, 10}};
  const ItemPieces cut = CutItems(items, 100);
  EXPECT_THAT(cut.pieces, ElementsAre(FilePiece{0, 0, 0, 0, 180},
                                      FilePiece{2, 0, 0, 7, 10}));
  EXPECT_THAT(cut.piece_of_item, ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(CutItems(items, 1).piece_of_item, ElementsAre(2, 0, 1, 2, 3));
  EXPECT_THAT(CutItems({}, 1).pieces, ElementsAre(FilePiece{}));
}

TEST(Pieces, APayloadIsNeverCut) {
  Files files;
  files.Add().Append(0, 1000, 0);
  EXPECT_THAT(CutIntoPieces(files.specs, 10),
              ElementsAre(FilePiece{0, 0, 1, 0, 1000}));
}

TEST(Pieces, FilesWithoutBytesAreSharedToo) {
  Files files;
  for (int i = 0; i < 5; ++i) files.Add();
  const std::vector<FilePiece> pieces = CutIntoPieces(files.specs, 10);
  EXPECT_EQ(pieces.size(), 5u);
  EXPECT_THAT(SharePieces(pieces, {0, 2}), ElementsAre(0, 2, 4));
  EXPECT_THAT(SharePieces(pieces, {1, 2}), ElementsAre(1, 3));
}

}  // namespace
}  // namespace dcp
