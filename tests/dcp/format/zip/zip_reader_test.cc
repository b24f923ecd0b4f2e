// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/zip/zip_reader.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/dcp/format/zip_builder.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::BuildZip;
using ::dcp::testing::Le16;
using ::dcp::testing::Le64;
using ::dcp::testing::MemoryItem;
using ::dcp::testing::StatusIs;
using ::dcp::testing::Zip64End;
using ::dcp::testing::ZipFile;
using ::testing::HasSubstr;

ZipFile SoundZip() {
  ZipFile zip;
  zip.records = {{.name = "a/data.pkl", .data = "pickle"},
                 {.name = "a/data/0", .data = std::string(100, 'x')},
                 {.name = "a/empty", .data = ""}};
  return zip;
}

absl::StatusOr<std::vector<ZipRecord>> RecordsIn(absl::string_view bytes) {
  MemoryItem item(bytes);
  return ReadZip(item.length(), item);
}

TEST(ZipReader, FindsPayloads) {
  const std::string bytes = BuildZip(SoundZip());
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records, RecordsIn(bytes));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].name, "a/data.pkl");
  EXPECT_EQ(bytes.substr(records[0].payload_offset, records[0].size), "pickle");
  EXPECT_EQ(bytes.substr(records[1].payload_offset, records[1].size),
            std::string(100, 'x'));
  EXPECT_EQ(records[1].crc, ExtendCrc32(0, AsBytes(std::string(100, 'x'))));
  EXPECT_EQ(records[2].size, 0u);
}

TEST(ZipReader, AcceptsAnArchiveWithoutRecords) {
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records,
                       RecordsIn(BuildZip(ZipFile{})));
  EXPECT_TRUE(records.empty());
}

TEST(ZipReader, AcceptsComments) {
  for (const size_t size : {1, 5000, 65535}) {
    ZipFile zip = SoundZip();
    zip.comment = std::string(size, 'c');
    EXPECT_OK(RecordsIn(BuildZip(zip))) << size;
  }
}

TEST(ZipReader, ReadsLittleOfAHugePayload) {
  ZipFile zip = SoundZip();
  zip.records[1].data = std::string(1 << 20, 'x');
  const std::string bytes = BuildZip(zip);
  MemoryItem item(bytes);
  ASSERT_OK(ReadZip(item.length(), item));
  EXPECT_LE(item.largest_read(), 4096u);
}

TEST(ZipReader, SkipsExtraFieldsOfAnyLength) {
  ZipFile zip = SoundZip();
  zip.records[1].extra = "FB" + Le16(60000) + std::string(60000, 'Z');
  const std::string bytes = BuildZip(zip);
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records, RecordsIn(bytes));
  EXPECT_EQ(bytes[records[1].payload_offset], 'x');
}

TEST(ZipReader, TakesZip64Fields) {
  ZipFile zip = SoundZip();
  ZipFile::Record& record = zip.records[1];
  record.size = 0xffffffff;
  record.local_size = 0xffffffff;
  record.offset = 0xffffffff;
  const std::string sizes = Le64(100) + Le64(100);
  const uint64_t offset = 30 + 10 + 6;
  record.extra = Le16(1) + Le16(16) + sizes;
  // Other fields before it are passed over.
  record.central_extra =
      "XY" + Le16(3) + "abc" + Le16(1) + Le16(24) + sizes + Le64(offset);
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records,
                       RecordsIn(BuildZip(zip)));
  EXPECT_EQ(records[1].size, 100u);
  EXPECT_EQ(records[1].payload_offset, offset + 30 + 8 + 20);
}

TEST(ZipReader, TakesTheZip64EndRecord) {
  ZipFile zip = SoundZip();
  const std::string plain = BuildZip(zip);
  const uint64_t end = plain.size() - 22;
  const uint64_t length = 3 * 46 + 10 + 8 + 7;
  zip.num_records = 0xffff;
  zip.directory_offset = 0xffffffff;
  zip.directory_length = 0xffffffff;
  zip.before_end = Zip64End(3, length, end - length, end);
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records,
                       RecordsIn(BuildZip(zip)));
  EXPECT_EQ(records.size(), 3u);
}

TEST(ZipReader, DoesNotCompareHeadersWithADescriptor) {
  ZipFile zip = SoundZip();
  zip.records[1].flags = 0x0808;
  zip.records[1].local_size = 0;
  zip.records[1].local_crc = 0;
  // A reader needs no descriptor, so any bytes may follow the payload.
  EXPECT_OK(RecordsIn(BuildZip(zip)));
}

TEST(ZipReader, AcceptsCrcsThatWereNotRecorded) {
  ZipFile zip = SoundZip();
  zip.records[1].crc = 0;
  zip.records[1].local_crc = 0;
  ASSERT_OK_AND_ASSIGN(const std::vector<ZipRecord> records,
                       RecordsIn(BuildZip(zip)));
  EXPECT_EQ(records[1].crc, 0u);
}

struct ZipCorruption {
  const char* name;
  std::function<void(ZipFile&)> corrupt;
  absl::StatusCode code;
  const char* message;
};

const ZipCorruption kZipCorruptions[] = {
    {"no end record", [](ZipFile& z) { z.has_end = false; },
     absl::StatusCode::kDataLoss, "zip end record is missing"},
    {"comment longer than the file", [](ZipFile& z) { z.comment_length = 9; },
     absl::StatusCode::kDataLoss, "zip end record is missing"},
    {"more records counted", [](ZipFile& z) { z.num_records = 4; },
     absl::StatusCode::kDataLoss, "cannot hold 4 records"},
    {"60000 records counted", [](ZipFile& z) { z.num_records = 60000; },
     absl::StatusCode::kDataLoss, "cannot hold 60000 records"},
    {"fewer records counted", [](ZipFile& z) { z.num_records = 2; },
     absl::StatusCode::kDataLoss, "after its last record"},
    {"directory offset", [](ZipFile& z) { z.directory_offset = 0x7fffffff; },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"directory offset off by one",
     [](ZipFile& z) {
       z.directory_offset =
           static_cast<uint32_t>(BuildZip(SoundZip()).size() - 22 - 163 - 1);
     },
     absl::StatusCode::kDataLoss, "ends before its last record"},
    {"directory length", [](ZipFile& z) { z.directory_length = 0x7fffffff; },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"directory too short", [](ZipFile& z) { z.directory_length = 140; },
     absl::StatusCode::kDataLoss, "zip directory"},
    {"zip64 locator outside",
     [](ZipFile& z) { z.before_end = Zip64End(3, 163, 0, uint64_t{1} << 60); },
     absl::StatusCode::kDataLoss, "zip64 locator points"},
    {"zip64 locator elsewhere",
     [](ZipFile& z) { z.before_end = Zip64End(3, 163, 0, 5); },
     absl::StatusCode::kDataLoss, "no zip64 end record"},
    {"zip64 huge numbers",
     [](ZipFile& z) {
       const uint64_t at = BuildZip(z).size() - 22;
       const uint64_t huge = uint64_t{1} << 62;
       z.num_records = 0xffff;
       z.directory_offset = 0xffffffff;
       z.directory_length = 0xffffffff;
       z.before_end = Zip64End(huge, huge, huge, at);
     },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"zip64 overflow",
     [](ZipFile& z) {
       const uint64_t at = BuildZip(z).size() - 22;
       z.directory_offset = 0xffffffff;
       z.before_end = Zip64End(3, 163, ~uint64_t{0} - 1, at);
     },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"zip64 contradicts",
     [](ZipFile& z) {
       const uint64_t at = BuildZip(z).size() - 22;
       z.before_end = Zip64End(2, 163, at - 163, at);
     },
     absl::StatusCode::kDataLoss, "disagree on the number of records"},
    {"local header outside",
     [](ZipFile& z) { z.records[1].offset = 0x7ffffff0; },
     absl::StatusCode::kDataLoss, "a/data/0"},
    {"local header elsewhere", [](ZipFile& z) { z.records[1].offset = 3; },
     absl::StatusCode::kDataLoss, "no zip record a/data/0 at 3"},
    {"local name", [](ZipFile& z) { z.records[1].local_name = "a/data/9"; },
     absl::StatusCode::kDataLoss, "another name"},
    {"local name longer",
     [](ZipFile& z) { z.records[1].local_name = "a/data/00"; },
     absl::StatusCode::kDataLoss, "another name"},
    {"local size", [](ZipFile& z) { z.records[1].local_size = 4; },
     absl::StatusCode::kDataLoss, "by its own header"},
    {"local crc", [](ZipFile& z) { z.records[1].local_crc = 4; },
     absl::StatusCode::kDataLoss, "has different CRCs"},
    {"size past the end", [](ZipFile& z) { z.records[1].size = 1000000000; },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"deflated", [](ZipFile& z) { z.records[1].method = 8; },
     absl::StatusCode::kUnimplemented, "compressed (method 8)"},
    {"unknown method", [](ZipFile& z) { z.records[1].method = 99; },
     absl::StatusCode::kUnimplemented, "compressed (method 99)"},
    {"encrypted", [](ZipFile& z) { z.records[1].flags = 0x0801; },
     absl::StatusCode::kUnimplemented, "encrypted"},
    {"same name twice", [](ZipFile& z) { z.records.push_back(z.records[1]); },
     absl::StatusCode::kDataLoss, "occurs twice"},
    {"same bytes twice",
     [](ZipFile& z) {
       z.records[1].data = "xx";
       z.records.push_back({.name = "a/b", .data = "yy"});
       z.records[0].size = z.records[0].local_size = 20;
     },
     absl::StatusCode::kDataLoss, "overlap"},
    {"parent directory", [](ZipFile& z) { z.records[1].name = "a/../../evil"; },
     absl::StatusCode::kDataLoss, "a component .."},
    {"absolute name", [](ZipFile& z) { z.records[1].name = "/evil"; },
     absl::StatusCode::kDataLoss, "/evil"},
    {"empty name", [](ZipFile& z) { z.records[1].name = ""; },
     absl::StatusCode::kDataLoss, "is empty, absolute"},
    {"NUL in a name",
     [](ZipFile& z) { z.records[1].name = std::string("a\0b", 3); },
     absl::StatusCode::kDataLoss, "is empty, absolute"},
    {"extra field longer than the archive",
     [](ZipFile& z) {
       z.records[2].extra = "x";
       z.records[2].size = z.records[2].local_size = 1;
     },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"extra field malformed",
     [](ZipFile& z) { z.records[2].extra = "FB\xff\xff"; },
     absl::StatusCode::kDataLoss, "extra field of record a/empty"},
    {"central extra field malformed",
     [](ZipFile& z) { z.records[1].central_extra = "FB" + Le16(9) + "Z"; },
     absl::StatusCode::kDataLoss, "extra field of record a/data/0"},
    {"zip64 size without a field",
     [](ZipFile& z) { z.records[1].size = 0xffffffff; },
     absl::StatusCode::kDataLoss, "reaches past"},
    {"zip64 size overflows",
     [](ZipFile& z) {
       z.records[1].size = 0xffffffff;
       z.records[1].central_extra =
           Le16(1) + Le16(16) + Le64(~uint64_t{0} - 9) + Le64(~uint64_t{0} - 9);
     },
     absl::StatusCode::kDataLoss, "reaches past"},
};

TEST(ZipReader, RefusesCorruption) {
  for (const ZipCorruption& corruption : kZipCorruptions) {
    ZipFile zip = SoundZip();
    corruption.corrupt(zip);
    EXPECT_THAT(RecordsIn(BuildZip(zip)),
                StatusIs(corruption.code, HasSubstr(corruption.message)))
        << corruption.name;
  }
}

TEST(ZipReader, RefusesEveryTruncation) {
  const std::string bytes = BuildZip(SoundZip());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(RecordsIn(absl::string_view(bytes).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
}

}  // namespace
}  // namespace dcp
