// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_archive.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/dcp/format/zip_builder.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::BuildZip;
using ::dcp::testing::MemoryItem;
using ::dcp::testing::StatusIs;
using ::dcp::testing::ZipFile;
using ::testing::HasSubstr;

// The pickle for a float32 tensor with shape [2, 3] in storage "0".
std::string TensorPickle() {
  ValueArena arena;
  return WritePickle(MakeTensor(arena, DType::kFloat32, {2, 3}, false, "0"));
}

ZipFile Sound() {
  ZipFile zip;
  zip.records = {{.name = "archive/data.pkl", .data = TensorPickle()},
                 {.name = "archive/byteorder", .data = "little"},
                 {.name = "archive/data/0", .data = std::string(24, 'x')},
                 {.name = "archive/version", .data = "3\n"}};
  return zip;
}

absl::StatusOr<TorchArchive> ReadArchive(absl::string_view bytes,
                                         bool allow_legacy = false) {
  const MemoryItem item(bytes);
  return ReadTorchArchive(item.length(), allow_legacy, item);
}

TEST(TorchArchive, FindsThePayloadOfATensor) {
  const std::string bytes = BuildZip(Sound());
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadArchive(bytes));
  EXPECT_FALSE(archive.legacy);
  EXPECT_FALSE(archive.big_endian);
  EXPECT_EQ(archive.records.size(), 4u);
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(archive.root));
  ASSERT_OK_AND_ASSIGN(const uint64_t offset, archive.PayloadOffset(tensor));
  EXPECT_EQ(bytes.substr(offset, 24), std::string(24, 'x'));
}

TEST(TorchArchive, PayloadOffsetIncludesTheViewOffset) {
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive,
                       ReadArchive(BuildZip(Sound())));
  ASSERT_OK_AND_ASSIGN(TorchTensor tensor, ParseTensor(archive.root));
  ASSERT_OK_AND_ASSIGN(const uint64_t whole, archive.PayloadOffset(tensor));
  tensor.storage_offset = 2;
  ASSERT_OK_AND_ASSIGN(const uint64_t view, archive.PayloadOffset(tensor));
  EXPECT_EQ(view, whole + 8);
  tensor.storage_offset = ~uint64_t{0} / 2;
  EXPECT_THAT(archive.PayloadOffset(tensor),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(TorchArchive, NeedsOnlyPickleStoragesAndVersion) {
  ZipFile zip = Sound();
  zip.records.erase(zip.records.begin() + 1);
  std::swap(zip.records[0], zip.records[2]);
  EXPECT_OK(ReadArchive(BuildZip(zip)));
}

TEST(TorchArchive, AcceptsBigEndian) {
  ZipFile zip = Sound();
  zip.records[1].data = "big";
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadArchive(BuildZip(zip)));
  EXPECT_TRUE(archive.big_endian);
}

TEST(TorchArchive, AcceptsALongerStorageAndBytesBehindThePickle) {
  ZipFile zip = Sound();
  zip.records[0].data += "garbage";
  zip.records[2].data += "more";
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadArchive(BuildZip(zip)));
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(archive.root));
  EXPECT_OK(archive.PayloadOffset(tensor));
}

TEST(TorchArchive, RefusesAStorageThatIsShortOrAbsent) {
  ZipFile zip = Sound();
  zip.records[2].data.pop_back();
  ASSERT_OK_AND_ASSIGN(const TorchArchive cut, ReadArchive(BuildZip(zip)));
  ASSERT_OK_AND_ASSIGN(TorchTensor tensor, ParseTensor(cut.root));
  EXPECT_THAT(cut.PayloadOffset(tensor),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("23 bytes")));
  tensor.storage_key = "../../version";
  EXPECT_THAT(cut.PayloadOffset(tensor),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is missing")));
}

struct ArchiveCorruption {
  const char* name;
  std::function<void(ZipFile&)> corrupt;
  absl::StatusCode code;
  const char* message;
};

const ArchiveCorruption kArchiveCorruptions[] = {
    {"no pickle", [](ZipFile& z) { z.records.erase(z.records.begin()); },
     absl::StatusCode::kDataLoss, "record data.pkl is missing"},
    {"no version", [](ZipFile& z) { z.records.pop_back(); },
     absl::StatusCode::kDataLoss, "record version is missing"},
    {"version 99", [](ZipFile& z) { z.records[3].data = "99\n"; },
     absl::StatusCode::kUnimplemented, "version 99 is newer"},
    {"version 0", [](ZipFile& z) { z.records[3].data = "0"; },
     absl::StatusCode::kDataLoss, "record version holds"},
    {"version no number", [](ZipFile& z) { z.records[3].data = "three"; },
     absl::StatusCode::kDataLoss, "record version holds"},
    {"version too long",
     [](ZipFile& z) { z.records[3].data = std::string(1000, '3'); },
     absl::StatusCode::kDataLoss, "exceeds 64"},
    {"middle endian", [](ZipFile& z) { z.records[1].data = "middle"; },
     absl::StatusCode::kDataLoss, "byteorder holds \"middle\""},
    {"TorchScript",
     [](ZipFile& z) {
       z.records.push_back({.name = "archive/constants.pkl", .data = ")."});
     },
     absl::StatusCode::kUnimplemented, "TorchScript"},
    {"record outside",
     [](ZipFile& z) {
       z.records.push_back({.name = "other/data/1", .data = "x"});
     },
     absl::StatusCode::kDataLoss, "outside the directory archive/"},
    {"no directory",
     [](ZipFile& z) {
       for (ZipFile::Record& record : z.records) record.name.erase(0, 8);
     },
     absl::StatusCode::kDataLoss, "is not in a directory"},
    {"another global",
     [](ZipFile& z) {
       z.records[0].data =
           "\x80\x02"
           "cos\nsystem\n.";
     },
     absl::StatusCode::kPermissionDenied, "os.system"},
    {"pickle cut short", [](ZipFile& z) { z.records[0].data.resize(40); },
     absl::StatusCode::kDataLoss, "data.pkl: pickle"},
    {"compressed", [](ZipFile& z) { z.records[2].method = 8; },
     absl::StatusCode::kUnimplemented, "compressed"},
};

TEST(TorchArchive, RefusesCorruption) {
  for (const ArchiveCorruption& corruption : kArchiveCorruptions) {
    ZipFile zip = Sound();
    corruption.corrupt(zip);
    EXPECT_THAT(ReadArchive(BuildZip(zip)).status(),
                StatusIs(corruption.code, HasSubstr(corruption.message)))
        << corruption.name;
  }
}

TEST(TorchArchive, DescribesOtherFiles) {
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  const std::pair<std::string, const char*> files[] = {
      {"", "the file is empty"},
      {"x", "an unknown format"},
      {"\x80\x02N.", "a bare pickle"},
      {"\x1f\x8b\x08", "a gzip file; decompress it first"},
      {"\x28\xb5\x2f\xfd", "a zstd file"},
      {"\x04\x22\x4d\x18", "an lz4 file"},
      {"BZh9", "a bzip2 file"},
      {std::string("\xfd"
                   "7zXZ\0",
                   6),
       "an xz file"},
      {tar, "a tar archive; unpack it first"},
      {"sys_info" + std::string(1016, '\0'), "a tar archive"},
      {std::string("\x02\0\0\0\0\0\0\0{}", 10), "a safetensors file"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"},
      {std::string("PK\5\6") + std::string(18, '\0'), "an empty zip"},
  };
  for (const auto& [bytes, message] : files) {
    EXPECT_THAT(ReadArchive(bytes, true).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace dcp
