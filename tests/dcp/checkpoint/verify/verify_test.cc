// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/verify/verify.h"

#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/routed_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::DcpBuilder;
using ::dcp::testing::Disk;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::GoldenCases;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TorchArchiveBytes;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

VerifyReport Verified(const std::string& path, double sample_percent = 100) {
  VerifyOptions options;
  options.sample_percent = sample_percent;
  absl::StatusOr<VerifyReport> report =
      VerifyCheckpoint(Disk(), path, std::move(options));
  EXPECT_OK(report);
  return *std::move(report);
}

// Flips a bit where `text` first occurs in `bytes`.
void Flip(std::string& bytes, absl::string_view text) {
  const size_t place = bytes.find(std::string(text));
  ASSERT_NE(place, std::string::npos);
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
}

// Two tensors with distinctive bytes and an object.
DcpBuilder SmallCheckpoint(bool with_crcs = true) {
  ValueArena arena;
  DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  for (const char* name : {"first", "other"}) {
    const Dims shape = {14};
    builder.AddChunk(
        name, DType::kUInt8, shape, WholeBox(shape),
        TorchArchiveBytes(MakeTensor(arena, DType::kUInt8, shape, false, "0"),
                          {absl::StrCat("bytes of ", name)}, with_crcs));
  }
  builder.AddObject("step", ObjectItem(arena.Str("object step")));
  builder.metadata().save_id = "id";
  return builder;
}

// Digests for the two tensors, as a save would leave them.
std::string MakeDigests(DcpBuilder& builder) {
  std::vector<ChunkDigest> digests;
  for (const char* text : {"bytes of first", "bytes of other"}) {
    const absl::string_view payload = absl::string_view(text);
    Digest64 digest;
    digest.Update(AsBytes(payload));
    digests.push_back({.file = "__0_0.distcp",
                       .offset = builder.files()[0].find(std::string(payload)),
                       .length = payload.size(),
                       .digest = digest.Value()});
  }
  return WriteDigests(digests);
}

TEST(Verify, ChecksEveryGoldenZipCompletely) {
  for (const GoldenCase& golden : GoldenCases()) {
    // These have neither CRCs nor digests.
    if (golden.kind == "hf" || golden.kind == "dcp-safetensors-items" ||
        absl::EndsWith(golden.name, "legacy")) {
      continue;
    }
    SCOPED_TRACE(golden.name);
    const TempDir dir;
    const VerifyReport report = Verified(CopyGolden(dir, golden.path));
    EXPECT_THAT(report.findings, IsEmpty());
    EXPECT_EQ(report.num_tensors, golden.tensors.size());
    EXPECT_EQ(report.num_objects, golden.objects.size());
    EXPECT_EQ(report.num_items_unchecked, 0u);
    EXPECT_GT(report.num_crcs_checked, 0u);
  }
}

// A checkpoint with many small items is read in few operations, and each item
// is examined once, by one of two threads.
TEST(Verify, ManySmallItemsAreReadTogether) {
  constexpr size_t kNumItems = 8400;
  SimStorage fs;
  ValueArena arena;
  DcpBuilder builder;
  const Dims shape = {14};
  const Value tensor = MakeTensor(arena, DType::kUInt8, shape, false, "0");
  const std::string item = TorchArchiveBytes(tensor, {"bytes of items"});
  for (size_t i = 0; i < kNumItems; ++i) {
    if (i % (kNumItems / 2) == 0) {
      builder.StartFile(absl::StrCat("__", i, "_0.distcp"));
    }
    builder.AddChunk(absl::StrCat("tensor", i), DType::kUInt8, shape,
                     WholeBox(shape), item);
  }
  ASSERT_OK(fs.MakeDirectory("/c"));
  for (size_t i = 0; i < builder.files().size(); ++i) {
    Flip(builder.files()[i], "bytes");
    ASSERT_OK(WriteFile(fs, JoinPath("/c", builder.metadata().files[i]),
                        builder.files()[i]));
  }
  ASSERT_OK(
      WriteFile(fs, "/c/.metadata", WriteDcpMetadata(builder.metadata())));
  const uint64_t num_before = fs.num_operations();
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoint(fs, "/c", {});
  ASSERT_OK(report);
  EXPECT_LT(fs.num_operations() - num_before, kNumItems / 10);
  EXPECT_EQ(report->num_items_checked, kNumItems);
  EXPECT_EQ(report->num_items_unchecked, 0u);
  EXPECT_GE(report->num_crcs_checked, kNumItems);
  // One in each file, whichever thread found it first.
  ASSERT_THAT(report->findings, SizeIs(2));
  EXPECT_EQ(report->findings[0].name, "tensor0");
  EXPECT_EQ(report->findings[1].name, absl::StrCat("tensor", kNumItems / 2));
}

TEST(Verify, CountsItemsWithoutChecksums) {
  const TempDir dir;
  // All except the one tensor that has no elements.
  VerifyReport report = Verified(CopyGolden(dir, "torch-2.11/legacy.pt"));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.num_items_unchecked, report.num_items_checked - 1);
  report = Verified(CopyGolden(dir, "torch-2.11/hugging_face"));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.num_items_unchecked, 3u);
  EXPECT_EQ(report.bytes_checked, 0u);
}

TEST(Verify, FindsAFlippedBitByCrc) {
  DcpBuilder builder = SmallCheckpoint();
  Flip(builder.files()[0], "bytes of other");
  const TempDir dir;
  const VerifyReport report = Verified(builder.Write(dir, "c"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "other");
  EXPECT_EQ(report.findings[0].file, "__0_0.distcp");
  EXPECT_EQ(builder.files()[0].substr(report.findings[0].offset + 1, 13),
            "ytes of other");
  EXPECT_THAT(report.findings[0].problem, HasSubstr("CRC-32 of 14 bytes"));
}

TEST(Verify, FindsAFlippedBitOfAnObject) {
  DcpBuilder builder = SmallCheckpoint();
  Flip(builder.files()[0], "object step");
  const TempDir dir;
  const VerifyReport report = Verified(builder.Write(dir, "c"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "step");
}

TEST(Verify, FindsAFlippedBitByDigestWithoutACrc) {
  DcpBuilder builder = SmallCheckpoint(/*with_crcs=*/false);
  const std::string digests = MakeDigests(builder);
  Flip(builder.files()[0], "bytes of first");
  const TempDir dir;
  const std::string path = builder.Write(dir, "c");
  const VerifyReport blind = Verified(path);
  EXPECT_THAT(blind.findings, IsEmpty());
  EXPECT_EQ(blind.num_items_unchecked, 2u);

  dir.WriteFile("c/.digests-id", digests);
  const VerifyReport report = Verified(path);
  EXPECT_EQ(report.num_items_unchecked, 0u);
  EXPECT_EQ(report.num_digests_checked, 2u);
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "first");
  EXPECT_THAT(report.findings[0].problem, HasSubstr("digest of 14 bytes"));
}

TEST(Verify, DigestsOfAnotherSaveDoNotCount) {
  DcpBuilder builder = SmallCheckpoint();
  const TempDir dir;
  const std::string path = builder.Write(dir, "c");
  dir.WriteFile("c/.digests-older", "not even digests");
  EXPECT_EQ(Verified(path).num_digests_checked, 0u);
  dir.WriteFile("c/.digests-id", MakeDigests(builder));
  const VerifyReport report = Verified(path);
  EXPECT_EQ(report.num_digests_checked, 2u);
  EXPECT_THAT(report.findings, IsEmpty());
  dir.WriteFile("c/.digests-id", "not even digests");
  const VerifyReport broken = Verified(path);
  ASSERT_THAT(broken.findings, SizeIs(1));
  EXPECT_EQ(broken.findings[0].file, "digests");
}

TEST(Verify, ADigestOfAnotherLengthCoversNothing) {
  const TempDir dir;
  DcpBuilder builder = SmallCheckpoint(/*with_crcs=*/false);
  const std::string path = builder.Write(dir, "c");
  const uint64_t offset = builder.files()[0].find("bytes of first");
  dir.WriteFile(
      "c/.digests-id",
      WriteDigests({{.file = "__0_0.distcp", .offset = offset, .length = 3}}));
  const VerifyReport report = Verified(path);
  EXPECT_EQ(report.num_items_unchecked, 2u);
  EXPECT_EQ(report.num_digests_checked, 0u);
}

TEST(Verify, ASampleHasAnItemOfEachFile) {
  ValueArena arena;
  DcpBuilder builder;
  for (const char* file : {"__0_0.distcp", "__1_0.distcp"}) {
    builder.StartFile(file);
    for (int i = 0; i < 3; ++i) {
      builder.AddTensor(absl::StrCat(file, i), DType::kUInt8, {4}, "abcd");
    }
  }
  const TempDir dir;
  const VerifyReport report = Verified(builder.Write(dir, "c"), 1);
  EXPECT_EQ(report.num_items, 6u);
  EXPECT_EQ(report.num_items_checked, 2u);
  EXPECT_GT(report.bytes_checked, 0u);
}

TEST(Verify, NamesItemsThatContradictTheIndex) {
  DcpBuilder builder = SmallCheckpoint();
  std::string& file = builder.files()[0];
  const size_t second = file.find("PK\x03\x04", file.find("bytes of first"));
  const std::string mark = "data.pkl";
  const size_t name = file.find(mark, file.find("bytes of first"));
  ASSERT_NE(name, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  // The end record in the second item's archive.
  const size_t end = file.find("PK\x05\x06", file.find("bytes of other"));
  ASSERT_NE(end, std::string::npos);
  file[end] = 'X';
  const TempDir dir;
  const VerifyReport report = Verified(builder.Write(dir, "c"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "other");
  EXPECT_EQ(report.findings[0].file, "__0_0.distcp");
  EXPECT_GT(report.findings[0].offset, 0u);
}

TEST(Verify, ChecksAConversionsDigests) {
  const TempDir dir;
  ConvertOptions options;
  options.selection.include = {"model.*"};
  const std::string path = dir.Join("out");
  options.to = Format::kSafetensors;
  ASSERT_OK(ConvertCheckpoint(Disk(), CopyGolden(dir, "torch-2.11/sharded"),
                              path, std::move(options)));
  const VerifyReport sound = Verified(path);
  EXPECT_THAT(sound.findings, IsEmpty());
  EXPECT_EQ(sound.num_items_unchecked, 0u);
  EXPECT_EQ(sound.num_digests_checked + 1, sound.num_tensors);  // one is empty

  std::string bytes = testing::ReadFile(path + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  dir.WriteFile("out/model.safetensors", bytes);
  EXPECT_THAT(Verified(path).findings, SizeIs(1));
}

TEST(Verify, NamesAllEntriesInAMissingFile) {
  const TempDir dir;
  const std::string path = SmallCheckpoint().Write(dir, "c");
  ASSERT_EQ(unlink(dir.Join("c/__0_0.distcp").c_str()), 0);
  const VerifyReport report = Verified(path);
  EXPECT_THAT(report.findings, SizeIs(3));
  EXPECT_THAT(report.findings[2].problem, HasSubstr("__0_0.distcp"));
  EXPECT_EQ(report.num_items, 3u);
  EXPECT_EQ(report.num_items_checked, 0u);
  EXPECT_EQ(report.num_items_unchecked, 0u);
}

// A failed read says nothing about the bytes. A script that removes checkpoints
// with findings must not remove a sound one.
TEST(Verify, ReportsStoreTroubleAsAnError) {
  const TempDir dir;
  const std::string src = SmallCheckpoint().Write(dir, "c");
  testing::SimObjectServer server;
  const auto client = [&server] {
    return NewRoutedFileSystem(NewPosixFileSystem(), server.Opener());
  };
  const std::string stored[] = {"s3://bucket/dcp", "s3://bucket/dir",
                                "s3://bucket/one.safetensors",
                                "s3://bucket/one.pt"};
  for (const std::string& path : stored) {
    ConvertOptions options;
    if (path == "s3://bucket/dir") options.to = Format::kSafetensors;
    if (!absl::EndsWith(path, ".pt")) options.selection.exclude = {"step"};
    ASSERT_OK(ConvertCheckpoint(*client(), src, path, std::move(options)));
  }
  const auto verify = [&](const std::string& path) {
    VerifyOptions options;
    options.memory_bytes = kMinMemoryBytes;
    return VerifyCheckpoint(*client(), path, std::move(options));
  };
  for (const std::string& path : stored) {
    ASSERT_OK_AND_ASSIGN(const VerifyReport sound, verify(path));
    EXPECT_THAT(sound.findings, IsEmpty());
    for (const absl::StatusCode code : {absl::StatusCode::kPermissionDenied,
                                        absl::StatusCode::kUnavailable}) {
      uint64_t call = 0;
      for (;; ++call) {
        SCOPED_TRACE(absl::StrCat(path, ", call ", call));
        const uint64_t before = server.num_calls();
        server.FailCall(call, absl::Status(code, "trouble"));
        const absl::StatusOr<VerifyReport> report = verify(path);
        if (server.num_calls() - before <= call) break;
        if (!report.ok()) {
          EXPECT_THAT(report, StatusIs(code));
        } else {
          EXPECT_EQ(*report, sound);  // it was asked again
        }
      }
      server.Heal();
      EXPECT_GE(call, 3u);
    }
  }
}

TEST(Verify, NamesTheEntriesBehindATruncation) {
  DcpBuilder builder = SmallCheckpoint();
  builder.files()[0].pop_back();
  const TempDir dir;
  const VerifyReport report = Verified(builder.Write(dir, "c"));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "step");
}

TEST(Verify, ASampleIsAShareOfTheItems) {
  DcpBuilder builder;
  builder.StartFile("f");
  for (int i = 0; i < 40; ++i) {
    builder.AddTensor(absl::StrCat("t", i), DType::kUInt8, {1}, "x");
  }
  const TempDir dir;
  const std::string path = builder.Write(dir, "c");
  const uint64_t crcs = Verified(path).num_crcs_checked;
  const VerifyReport report = Verified(path, 25);
  EXPECT_EQ(report.num_items_checked, 10u);
  EXPECT_EQ(report.num_crcs_checked, crcs / 4);
  EXPECT_EQ(report.num_items_unchecked, 0u);
}

TEST(Verify, RefusesInvalidShares) {
  for (const double share :
       {0.0, -1.0, 100.1, std::numeric_limits<double>::quiet_NaN()}) {
    VerifyOptions options;
    options.sample_percent = share;
    EXPECT_THAT(VerifyCheckpoint(Disk(), "absent", std::move(options)),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// A .pt file in which `first` and `second` are views of one storage, with an
// unrelated tensor and an object.
std::string FileWithViews() {
  ValueArena arena;
  const Value base = MakeTensor(arena, DType::kUInt8, {4}, false, "0");
  // The same storage from the third byte on.
  const std::vector<Value> args(base.args().items().begin(),
                                base.args().items().end());
  std::vector<Value> view = args;
  view[1] = Value::Int(2);
  view[2] = arena.Tuple({Value::Int(2)});
  const Value root = arena.Dict(
      {arena.Str("first"), base, arena.Str("second"),
       arena.Call(base.callable(), arena.Tuple(view)), arena.Str("other"),
       MakeTensor(arena, DType::kUInt8, {5}, false, "1"), arena.Str("empty"),
       MakeTensor(arena, DType::kUInt8, {0}, false, "2"), arena.Str("step"),
       arena.Str("object step")});
  return TorchArchiveBytes(root, {"base", "other", ""});
}

TEST(Verify, ChecksSharedStoragesOnce) {
  const TempDir dir;
  const VerifyReport report = Verified(dir.WriteFile("x.pt", FileWithViews()));
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.num_items_checked, 5u);
  EXPECT_EQ(report.num_items_unchecked, 0u);
  // data.pkl, two storages, .format_version, .storage_alignment, byteorder,
  // version, .data/serialization_id.
  EXPECT_EQ(report.num_crcs_checked, 8u);
}

TEST(Verify, FindsAFlippedBitOfAFile) {
  const TempDir dir;
  std::string bytes = FileWithViews();
  Flip(bytes, "base");
  VerifyReport report = Verified(dir.WriteFile("x.pt", bytes));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].file, "x.pt");

  bytes = FileWithViews();
  Flip(bytes, "object step");
  report = Verified(dir.WriteFile("x.pt", bytes));
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings[0].name, "archive/data.pkl");
}

TEST(Verify, ASampleOfAFileLeavesOutStorages) {
  const TempDir dir;
  std::string bytes = FileWithViews();
  const std::string path = dir.WriteFile("x.pt", bytes);
  const VerifyReport report = Verified(path, 20);  // the last of five: step
  EXPECT_EQ(report.num_items_checked, 1u);
  EXPECT_EQ(report.num_crcs_checked, 6u);
  EXPECT_EQ(report.num_items_unchecked, 0u);
}

}  // namespace
}  // namespace dcp
