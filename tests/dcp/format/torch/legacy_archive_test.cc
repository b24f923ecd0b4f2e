// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/legacy_archive.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/format/torch/torch_archive_reader.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/memory_item.h"
#include "tests/dcp/format/zip_builder.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::Le32;
using ::dcp::testing::Le64;
using ::dcp::testing::MemoryItem;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

std::string Pickle(absl::string_view body) {
  return absl::StrCat("\x80\x02", body, ".");
}

std::string Text(absl::string_view text) {
  return absl::StrCat("X", Le32(text.size()), text);
}

// The parts of a file; each test changes one.
struct Legacy {
  std::string magic =
      Pickle("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");
  std::string protocol = Pickle("M\xe9\x03");
  std::string info = Pickle("}" + Text("little_endian") + "\x88s");
  std::string storage_class = "ctorch\nFloatStorage\n";
  std::string view = "N";
  std::string kind = "storage";
  std::string keys = Pickle("]" + Text("94") + "a");
  std::string count = Le64(6);
  std::string payload = std::string(24, 'x');

  std::string Object() const {
    // {"w": a tensor with shape [2, 3]}
    return Pickle(absl::StrCat(
        "}", Text("w"), "ctorch._utils\n_rebuild_tensor_v2\n((", Text(kind),
        storage_class, Text("94"), Text("cpu"), "K\x06", view, "tQK",
        absl::string_view("\0", 1), "K\x02K\x03\x86K\x03K\x01\x86\x89",
        "ccollections\nOrderedDict\n)RtRs"));
  }

  std::string Bytes() const {
    return absl::StrCat(magic, protocol, info, Object(), keys, count, payload);
  }
};

absl::StatusOr<TorchArchive> ReadLegacy(absl::string_view bytes,
                                        bool allow_legacy = true) {
  const MemoryItem item(bytes);
  return ReadTorchArchive(item.length(), allow_legacy, item);
}

TEST(LegacyArchive, FindsThePayloadOfATensor) {
  const std::string bytes = Legacy().Bytes();
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadLegacy(bytes));
  EXPECT_TRUE(archive.legacy);
  EXPECT_FALSE(archive.big_endian);
  EXPECT_TRUE(archive.records.empty());
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor,
                       ParseTensor(archive.root.items()[1]));
  ASSERT_OK_AND_ASSIGN(const uint64_t offset, archive.PayloadOffset(tensor));
  EXPECT_EQ(offset, bytes.size() - 24);
}

TEST(LegacyArchive, IsRefusedAsAnItem) {
  EXPECT_THAT(ReadLegacy(Legacy().Bytes(), false).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("before PyTorch 1.6")));
}

TEST(LegacyArchive, ReadsPicklesLongerThanTheFirstPiece) {
  Legacy legacy;
  legacy.info = Pickle("}" + Text("x") + Text(std::string(3 << 20, 'x')) + "s");
  EXPECT_OK(ReadLegacy(legacy.Bytes()));
}

TEST(LegacyArchive, RecognisesBigEndian) {
  Legacy legacy;
  legacy.info = Pickle("}" + Text("little_endian") + "\x89s");
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadLegacy(legacy.Bytes()));
  EXPECT_TRUE(archive.big_endian);
}

TEST(LegacyArchive, CountsBytesOfUntypedStorages) {
  Legacy legacy;
  legacy.storage_class = "ctorch.storage\nUntypedStorage\n";
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadLegacy(legacy.Bytes()));
  EXPECT_EQ(archive.storages.at("94").size, 6u);
}

TEST(LegacyArchive, RefusesCorruption) {
  const auto with = [](auto change) {
    Legacy legacy;
    change(legacy);
    return legacy.Bytes();
  };
  const std::pair<std::string, const char*> corruptions[] = {
      {with([](Legacy& l) { l.protocol = Pickle("M\xea\x03"); }),
       "legacy protocol 1002"},
      {with([](Legacy& l) { l.protocol = Pickle("N"); }), "legacy protocol"},
      {with([](Legacy& l) { l.info = Pickle("]"); }), "is not a dict"},
      {with([](Legacy& l) { l.info = Pickle("cos\nsystem\n"); }), "os.system"},
      {with([](Legacy& l) { l.storage_class = "cos\nsystem\n"; }), "os.system"},
      {with([](Legacy& l) { l.view = Text("v") + "K\x01K\x02\x87"; }),
       "view of another"},
      {with([](Legacy& l) { l.kind = "other"; }),
       "expected the persistent id of a storage"},
      {with([](Legacy& l) { l.kind = "module"; }), "whole pickled module"},
      {with([](Legacy& l) { l.keys = Pickle("N"); }), "not a list"},
      {with([](Legacy& l) { l.keys = Pickle("]" + Text("95") + "a"); }),
       "belongs to no tensor"},
      {with([](Legacy& l) {
         l.keys = Pickle(
             "]K\x01"
             "a");
       }),
       "belongs to no tensor"},
      {with([](Legacy& l) {
         l.keys = Pickle("]" + Text("94") + "a" + Text("94") + "a");
         l.payload += Le64(0);
       }),
       "occurs twice"},
      {with([](Legacy& l) { l.payload = "x"; }), "reaches past the end"},
      {with([](Legacy& l) { l.count = Le64(~uint64_t{0}); }),
       "reaches past the end"},
      {with([](Legacy& l) { l.count = Le64(uint64_t{1} << 62); }),
       "reaches past the end"},
      {with([](Legacy& l) {
         l.count = "";
         l.payload = "1234567";
       }),
       "the file ends before storage"},
  };
  for (const auto& [bytes, message] : corruptions) {
    const absl::Status status = ReadLegacy(bytes).status();
    EXPECT_FALSE(status.ok()) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST(LegacyArchive, RefusesEveryTruncation) {
  const std::string bytes = Legacy().Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadLegacy(absl::string_view(bytes).substr(0, size)).ok())
        << size;
  }
}

TEST(LegacyArchive, RefusesAStorageShorterThanRecorded) {
  Legacy legacy;
  legacy.count = Le64(5);
  legacy.payload.resize(20);
  ASSERT_OK_AND_ASSIGN(const TorchArchive archive, ReadLegacy(legacy.Bytes()));
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor,
                       ParseTensor(archive.root.items()[1]));
  EXPECT_THAT(archive.PayloadOffset(tensor),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("20 bytes")));
}

}  // namespace
}  // namespace dcp
