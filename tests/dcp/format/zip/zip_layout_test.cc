// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/zip/zip_layout.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/format/zip/zip_reader.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MemoryItem;

// The whole archive, as a writer would stream it.
std::string AssembleZip(const ZipLayout& layout,
                        const std::vector<std::string>& payloads) {
  std::string out;
  std::vector<uint32_t> crcs;
  for (size_t i = 0; i < payloads.size(); ++i) {
    const std::string gap = layout.Gap(i, crcs);
    EXPECT_EQ(gap.size(), layout.gap_length(i));
    out += gap;
    EXPECT_EQ(out.size(), layout.payload_offset(i));
    out += payloads[i];
    crcs.push_back(ExtendCrc32(0, AsBytes(payloads[i])));
  }
  out += layout.Gap(payloads.size(), crcs);
  EXPECT_EQ(out.size(), layout.size());
  return out;
}

TEST(ZipLayout, IsReadBack) {
  const std::vector<std::string> payloads = {"pickle", std::string(1000, 'x'),
                                             "", "3\n"};
  std::vector<ZipLayout::Record> records;
  for (size_t i = 0; i < payloads.size(); ++i) {
    records.push_back({absl::StrCat("archive/", i), payloads[i].size()});
  }
  for (const uint64_t alignment : {1, 64, 4096}) {
    const ZipLayout layout(records, alignment);
    const std::string bytes = AssembleZip(layout, payloads);
    MemoryItem item(bytes);
    ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> read,
                         ReadZip(item.length(), item));
    ASSERT_EQ(read.size(), payloads.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].name, records[i].name);
      EXPECT_EQ(read[i].size, payloads[i].size());
      EXPECT_EQ(read[i].payload_offset, layout.payload_offset(i));
      EXPECT_EQ(read[i].payload_offset % alignment, 0u);
      EXPECT_EQ(read[i].crc, ExtendCrc32(0, AsBytes(payloads[i])));
    }
  }
}

TEST(ZipLayout, WithoutRecordsIsAnEmptyArchive) {
  const ZipLayout layout({}, 64);
  const std::string bytes = layout.Gap(0, {});
  EXPECT_EQ(bytes.size(), layout.size());
  MemoryItem item(bytes);
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> read,
                       ReadZip(item.length(), item));
  EXPECT_TRUE(read.empty());
}

// The bytes that PyTorch 2.11 wrote for one record, except for the archive
// name.
TEST(ZipLayout, WritesHeadersAsPyTorchDoes) {
  const ZipLayout layout({{"a/b", 5}}, 64);
  const std::string header = layout.Gap(0, {});
  EXPECT_EQ(header.substr(0, 33 + 4),
            absl::StrCat(absl::string_view("PK\x03\x04\0\0\x08\x08", 8),
                         std::string(18, '\0'),
                         absl::string_view("\x03\0\x1f\0a/bFB", 9),
                         absl::string_view("\x1b\0", 2)));
  EXPECT_EQ(header.substr(37), std::string(27, 'Z'));
  const std::vector<uint32_t> crcs = {0x01020304};
  EXPECT_EQ(
      layout.Gap(1, crcs).substr(0, 16),
      absl::string_view("PK\x07\x08\x04\x03\x02\x01\5\0\0\0\5\0\0\0", 16));
}

// A file with only the gaps; payloads that read as zeros are never requested.
class SparseItem {
 public:
  explicit SparseItem(const ZipLayout& layout) {
    const std::vector<uint32_t> crcs(layout.num_records(), 7);
    uint64_t at = 0;
    for (size_t i = 0; i <= layout.num_records(); ++i) {
      parts_.push_back({at, layout.Gap(i, crcs)});
      if (i < layout.num_records()) {
        const bool last = i + 1 == layout.num_records();
        at = (last ? layout.size() : layout.payload_offset(i + 1)) -
             layout.gap_length(i + 1);
      }
    }
  }

  absl::StatusOr<ByteSpan> operator()(uint64_t offset, uint64_t length) const {
    last_.assign(length, 0);
    for (const auto& [at, bytes] : parts_) {
      for (uint64_t i = 0; i < bytes.size(); ++i) {
        if (at + i >= offset && at + i - offset < length) {
          last_[at + i - offset] = static_cast<uint8_t>(bytes[i]);
        }
      }
    }
    return ByteSpan(last_);
  }

 private:
  struct Part {
    uint64_t at;
    std::string bytes;
  };
  std::vector<Part> parts_;
  mutable std::vector<uint8_t> last_;
};

TEST(ZipLayout, UsesZip64ForLargeSizesAndOffsets) {
  const uint64_t limit = 0xffffffff;
  for (const uint64_t size :
       {limit - 200, limit - 1, limit, limit + 1, 3 * limit}) {
    const std::vector<ZipLayout::Record> records = {
        {"a/first", 10}, {"a/large", size}, {"a/after", 10}, {"a/empty", 0}};
    const ZipLayout layout(records, 64);
    SparseItem item(layout);
    ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> read,
                         ReadZip(layout.size(), item));
    ASSERT_EQ(read.size(), records.size()) << size;
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].size, records[i].size) << size;
      EXPECT_EQ(read[i].payload_offset, layout.payload_offset(i)) << size;
      EXPECT_EQ(layout.payload_offset(i) % 64, 0u) << size;
    }
  }
}

TEST(ZipLayout, UsesZip64AtTheSameLimitAsPyTorch) {
  const auto tail_length = [](uint64_t size) {
    return ZipLayout({{"a/b", size}}, 64).gap_length(1);
  };
  const uint64_t limit = 0xffffffff;
  EXPECT_GT(tail_length(limit), tail_length(limit - 1));
  EXPECT_EQ(tail_length(limit), tail_length(limit + 1));
}

TEST(ZipLayout, CountsMoreRecordsThan16BitsHold) {
  std::vector<ZipLayout::Record> records;
  for (int i = 0; i < 70000; ++i) records.push_back({absl::StrCat("a/", i), 0});
  const ZipLayout layout(records, 64);
  const std::vector<uint32_t> crcs(records.size(), 0);
  std::string bytes;
  for (size_t i = 0; i <= records.size(); ++i) bytes += layout.Gap(i, crcs);
  MemoryItem item(bytes);
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> read,
                       ReadZip(item.length(), item));
  ASSERT_EQ(read.size(), records.size());
  EXPECT_EQ(read.back().name, "a/69999");
}

}  // namespace
}  // namespace dcp
