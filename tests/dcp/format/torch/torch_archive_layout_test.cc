// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_archive_layout.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MemoryItem;

std::string Assemble(const TorchArchiveLayout& layout,
                     const std::vector<std::string>& storages) {
  std::string out;
  std::vector<uint32_t> crcs;
  for (size_t i = 0; i <= storages.size(); ++i) {
    const std::string gap = layout.Gap(i, crcs);
    EXPECT_EQ(gap.size(), layout.gap_length(i));
    out += gap;
    if (i == storages.size()) break;
    EXPECT_EQ(out.size(), layout.payload_offset(i));
    EXPECT_EQ(layout.payload_offset(i) % kStorageAlignment, 0u);
    out += storages[i];
    crcs.push_back(ExtendCrc32(0, AsBytes(storages[i])));
  }
  EXPECT_EQ(out.size(), layout.size());
  return out;
}

TEST(TorchArchiveLayout, IsReadBack) {
  ValueArena arena;
  const std::string pickle =
      WritePickle(MakeTensor(arena, DType::kFloat32, {2, 3}, false, "0"));
  const std::vector<std::vector<std::string>> cases = {
      {},
      {std::string(24, 'x')},
      {""},
      {std::string(24, 'x'), "", std::string(1000, 'y'), "z"}};
  for (const std::vector<std::string>& storages : cases) {
    std::vector<uint64_t> lengths;
    for (const std::string& storage : storages) {
      lengths.push_back(storage.size());
    }
    const TorchArchiveLayout layout("archive", pickle, lengths);
    const std::string bytes = Assemble(layout, storages);
    const MemoryItem item(bytes);
    ASSERT_OK_AND_ASSIGN(const TorchArchive archive,
                         ReadTorchArchive(item.length(), false, item));
    ASSERT_EQ(archive.storages.size(), storages.size());
    for (size_t i = 0; i < storages.size(); ++i) {
      const TorchArchive::Storage& storage =
          archive.storages.at(absl::StrCat(i));
      EXPECT_EQ(storage.payload_offset, layout.payload_offset(i));
      EXPECT_EQ(bytes.substr(storage.payload_offset, storage.size),
                storages[i]);
    }
    for (const ZipRecord& record : archive.records) {
      EXPECT_EQ(record.crc,
                ExtendCrc32(0, AsBytes(absl::string_view(bytes).substr(
                                   record.payload_offset, record.size))))
          << record.name;
    }
  }
}

TEST(TorchArchiveLayout, HasPyTorchsRecordsInOrder) {
  const TorchArchiveLayout layout("model", "\x80\x02N.", {4});
  const std::string bytes = Assemble(layout, {"data"});
  const MemoryItem item(bytes);
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive,
                       ReadTorchArchive(item.length(), false, item));
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"model/data.pkl", "\x80\x02N."},   {"model/.format_version", "1"},
      {"model/.storage_alignment", "64"}, {"model/byteorder", "little"},
      {"model/data/0", "data"},           {"model/version", "3\n"}};
  ASSERT_EQ(archive.records.size(), 7u);
  for (size_t i = 0; i < expected.size(); ++i) {
    const ZipRecord& record = archive.records[i];
    EXPECT_EQ(record.name, expected[i].first);
    EXPECT_EQ(bytes.substr(record.payload_offset, record.size),
              expected[i].second);
  }
  const ZipRecord& id = archive.records[6];
  EXPECT_EQ(id.name, "model/.data/serialization_id");
  EXPECT_THAT(bytes.substr(id.payload_offset, id.size),
              ::testing::MatchesRegex("[0-9]{40}"));
}

TEST(TorchArchiveLayout, DependsOnlyOnItsArguments) {
  const TorchArchiveLayout a("m", "\x80\x02N.", {4});
  const TorchArchiveLayout b("m", "\x80\x02N.", {4});
  EXPECT_EQ(Assemble(a, {"data"}), Assemble(b, {"data"}));
}

TEST(TorchArchiveName, IsTheFileNameWithoutTheLastExtension) {
  EXPECT_EQ(TorchArchiveName("/a/b/model.pt"), "model");
  EXPECT_EQ(TorchArchiveName("model.v1.pt"), "model.v1");
  EXPECT_EQ(TorchArchiveName("model"), "model");
  EXPECT_EQ(TorchArchiveName("m\xc3\xb6"
                             "del.pt"),
            "archive");
  EXPECT_EQ(TorchArchiveName("a/.pt"), "archive");
  EXPECT_EQ(TorchArchiveName("...pt"), "archive");
  EXPECT_EQ(TorchArchiveName(""), "archive");
}

}  // namespace
}  // namespace dcp
