// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/object/object_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"
#include "dcp/io/io_queue.h"
#include "tests/testing/sim_object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kAlreadyExists;
using ::absl::StatusCode::kFailedPrecondition;
using ::absl::StatusCode::kInvalidArgument;
using ::absl::StatusCode::kNotFound;
using ::absl::StatusCode::kOutOfRange;
using ::absl::StatusCode::kResourceExhausted;
using ::absl::StatusCode::kUnavailable;
using ::absl::StatusCode::kUnimplemented;
using ::dcp::testing::SimObjectServer;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kPart = kObjectBlockBytes;

std::string Pattern(uint64_t size) {
  std::string bytes(size, '\0');
  for (uint64_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(i * 31 + i / 4096);
  }
  return bytes;
}

class ObjectFiles : public ::testing::Test {
 protected:
  ObjectFiles() : fs_(server_.Opener()) {}

  absl::StatusOr<std::string> ReadAll(absl::string_view path) {
    return ReadFile(fs_, path, uint64_t{1} << 30, false);
  }

  SimObjectServer server_;
  ObjectFileSystem fs_;
};

TEST_F(ObjectFiles, SmallFilesArePutAtOnceAndLargeOnesInParts) {
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{1}, kPart, kPart + 1, 3 * kPart, 3 * kPart + 7}) {
    const std::string path = absl::StrCat("s3://bucket/of/", size);
    ASSERT_OK(WriteFile(fs_, path, Pattern(size)));
    EXPECT_EQ(server_.num_uploads(), 0);
    const absl::StatusOr<std::string> read = ReadAll(path);
    ASSERT_OK(read.status());
    EXPECT_TRUE(*read == Pattern(size)) << size;
    EXPECT_EQ(fs_.Stat(path)->size, size);
  }
}

TEST_F(ObjectFiles, AFileThatIsNotSyncedNeverAppears) {
  const absl::StatusOr<File> file =
      fs_.Create("s3://bucket/f", 3 * kPart, DirectMode::kAuto);
  ASSERT_OK(file.status());
  const std::string bytes = Pattern(2 * kPart);
  ASSERT_OK(fs_.Write(*file, 0, AsBytes(bytes)));
  EXPECT_EQ(server_.num_uploads(), 1);
  EXPECT_THAT(fs_.Sync(*file),
              StatusIs(kFailedPrecondition, HasSubstr("of 25165824 bytes")));
  EXPECT_OK(fs_.Close(*file));
  EXPECT_EQ(server_.num_uploads(), 0);
  EXPECT_EQ(server_.num_objects(), 0);
}

TEST_F(ObjectFiles, AHiddenFileAppearsWhenItIsPublished) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{5}, kPart + 5}) {
    server_.PutBytes("f", "old");
    const absl::StatusOr<File> file = fs_.CreateInParts(
        "s3://bucket/f", {.size = size, .part_bytes = kPart, .hidden = true});
    ASSERT_OK(file.status());
    ASSERT_OK(fs_.Write(*file, 0, AsBytes(Pattern(size))));
    ASSERT_OK(fs_.Sync(*file));
    ASSERT_OK(fs_.Close(*file));
    EXPECT_EQ(server_.BytesOf("f"), "old");
    ASSERT_OK(fs_.Publish("s3://bucket/f", true));
    EXPECT_TRUE(server_.BytesOf("f") == Pattern(size));
    EXPECT_THAT(fs_.Publish("s3://bucket/f", true), StatusIs(kNotFound));
    EXPECT_EQ(server_.num_uploads(), 0);
  }
}

TEST_F(ObjectFiles, ADiscardedHiddenFileChangesNothing) {
  server_.PutBytes("f", "old");
  const absl::StatusOr<File> file = fs_.CreateInParts(
      "s3://bucket/f", {.size = 3, .part_bytes = kPart, .hidden = true});
  ASSERT_OK(file.status());
  ASSERT_OK(fs_.Write(*file, 0, AsBytes("new")));
  ASSERT_OK(fs_.Sync(*file));
  ASSERT_OK(fs_.Close(*file));
  absl::StatusOr<std::vector<HiddenFile>> hidden =
      fs_.ListHidden("s3://bucket");
  ASSERT_OK(hidden.status());
  ASSERT_EQ(hidden->size(), 1);
  EXPECT_EQ(hidden->front().path, "s3://bucket/f");
  EXPECT_OK(fs_.Discard("s3://bucket/f"));
  EXPECT_EQ(fs_.ListHidden("s3://bucket")->size(), 0);
  EXPECT_EQ(server_.BytesOf("f"), "old");
  EXPECT_OK(fs_.RemoveHidden(hidden->front()));  // is gone already
}

TEST_F(ObjectFiles, AHiddenFileIsPublishedByAnotherProcess) {
  const std::string path = "s3://bucket/f";
  for (const uint64_t size : {uint64_t{0}, uint64_t{5}, 2 * kPart + 1}) {
    SCOPED_TRACE(size);
    std::optional<ObjectFileSystem> first;
    first.emplace(server_.Opener());
    const absl::StatusOr<File> file =
        first->CreateInParts(path, {.size = size,
                                    .part_bytes = kPart,
                                    .hidden = true,
                                    .label = "writer1"});
    ASSERT_OK(file.status());
    const std::string bytes = Pattern(size);
    ASSERT_OK(first->Write(*file, 0, AsBytes(bytes)));
    ASSERT_OK(first->Sync(*file));
    ASSERT_OK(first->Close(*file));
    const absl::StatusOr<HiddenFile> hidden = first->Release(path);
    ASSERT_OK(hidden.status());
    EXPECT_EQ(hidden->path, path);
    EXPECT_THAT(first->Publish(path, true), StatusIs(kNotFound));
    first.reset();
    EXPECT_EQ(server_.num_uploads(), size > 0 ? 1 : 0);

    EXPECT_THAT(fs_.Adopt(*hidden, size + 1),
                StatusIs(size == 0 ? kNotFound : kFailedPrecondition));
    ASSERT_OK(fs_.Adopt(*hidden, size));
    ASSERT_OK(fs_.Publish(path, true));
    EXPECT_EQ(server_.num_uploads(), 0);
    EXPECT_TRUE(server_.BytesOf("f") == bytes);
    if (size == 0) continue;  // has no upload
    EXPECT_EQ(fs_.Stat(path)->label, "writer1");
    EXPECT_THAT(fs_.Adopt(*hidden, size), StatusIs(kNotFound));
  }
}

TEST_F(ObjectFiles, FoldersAreCommonPrefixesOfKeys) {
  for (const char* key : {"run/step-1/.metadata", "run/step-1/__0_0.distcp",
                          "run/step-2/.metadata", "run/notes", "run/a", "run/b",
                          "run/c", "other"}) {
    server_.PutBytes(key, "x");
  }
  server_.PutBytes("run/", "");  // another program's marker
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      fs_.List("s3://bucket/run/");
  ASSERT_OK(entries.status());
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) {
    names.push_back(absl::StrCat(
        entry.name, entry.kind == FileKind::kDirectory ? "/" : ""));
  }
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "notes", "step-1/", "step-2/"));
  EXPECT_EQ(fs_.Stat("s3://bucket/run")->kind, FileKind::kDirectory);
  EXPECT_EQ(fs_.Stat("s3://bucket")->kind, FileKind::kDirectory);
  EXPECT_EQ(fs_.Stat("s3://bucket/run/notes")->kind, FileKind::kFile);
  EXPECT_THAT(fs_.Stat("s3://bucket/ru").status(), StatusIs(kNotFound));
  EXPECT_THAT(fs_.List("s3://bucket/ru").status(), StatusIs(kNotFound));
  EXPECT_THAT(fs_.List("s3://nowhere/run").status(),
              StatusIs(kNotFound, HasSubstr("no such bucket")));
}

TEST_F(ObjectFiles, AReaderNeverSeesTwoObjects) {
  server_.PutBytes("f", Pattern(100));
  const absl::StatusOr<File> file =
      fs_.OpenForRead("s3://bucket/f", DirectMode::kAuto, false);
  ASSERT_OK(file.status());
  std::string bytes(50, '\0');
  const MutableByteSpan into(reinterpret_cast<uint8_t*>(bytes.data()), 50);
  EXPECT_OK(fs_.Read(*file, 0, into));
  EXPECT_THAT(fs_.Read(*file, 51, into),
              StatusIs(kOutOfRange, HasSubstr("file ends at 100")));
  server_.PutBytes("f", Pattern(100));
  EXPECT_THAT(fs_.Read(*file, 50, into),
              StatusIs(kFailedPrecondition, HasSubstr("replaced")));
  EXPECT_OK(fs_.Close(*file));
}

TEST_F(ObjectFiles, ReplaceRequiresTheSeenVersion) {
  EXPECT_OK(fs_.Replace("s3://bucket/i", "1", std::nullopt));
  EXPECT_THAT(fs_.Replace("s3://bucket/i", "2", std::nullopt),
              StatusIs(kAlreadyExists));
  const absl::StatusOr<FileInfo> seen = fs_.Stat("s3://bucket/i");
  ASSERT_OK(seen.status());
  EXPECT_OK(fs_.Replace("s3://bucket/i", "2", *seen));
  EXPECT_THAT(fs_.Replace("s3://bucket/i", "3", *seen),
              StatusIs(kAlreadyExists, HasSubstr("by another program")));
  EXPECT_EQ(server_.BytesOf("i"), "2");
  ASSERT_OK(fs_.Remove("s3://bucket/i"));
  EXPECT_THAT(fs_.Replace("s3://bucket/i", "3", *seen),
              StatusIs(kAlreadyExists, HasSubstr("removed")));
}

TEST_F(ObjectFiles, ReplaceRecognisesItsBytesAfterALostAnswer) {
  // Another writer is first, after Replace has looked, with the same bytes, as
  // after a put with a lost answer.
  server_.FailCall(1, absl::AlreadyExistsError("is there"), /*happens=*/true);
  EXPECT_OK(fs_.Replace("s3://bucket/i", "same", std::nullopt));
  server_.FailCall(1, absl::AlreadyExistsError("is there"), /*happens=*/false);
  EXPECT_THAT(fs_.Replace("s3://bucket/j", "same", std::nullopt),
              StatusIs(kAlreadyExists, HasSubstr("is there")));
}

TEST_F(ObjectFiles, RefusesUnsupportedOperations) {
  EXPECT_THAT(fs_.Rename("s3://bucket/a", "s3://bucket/b"),
              StatusIs(kUnimplemented));
  EXPECT_THAT(fs_.Lock("s3://bucket/a", "").status(), StatusIs(kUnimplemented));
  EXPECT_THAT(fs_.Create("s3://bucket", 1, DirectMode::kAuto).status(),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(fs_.OpenForRead("s3://bucket", DirectMode::kAuto, false).status(),
              StatusIs(kFailedPrecondition, HasSubstr("bucket")));
  EXPECT_THAT(
      fs_.Create("s3://bucket/huge", uint64_t{1} << 60, DirectMode::kAuto)
          .status(),
      StatusIs(kResourceExhausted, HasSubstr("--max-shard-size")));
  EXPECT_EQ(fs_.FreeBytes("s3://bucket").value(), UINT64_MAX);
}

TEST_F(ObjectFiles, PartsGrowWithTheFile) {
  const FileSystemTraits traits = fs_.TraitsAt("s3://bucket/f");
  EXPECT_FALSE(traits.has_rename);
  EXPECT_FALSE(traits.in_order);
  EXPECT_TRUE(fs_.TraitsAt("gs://bucket/f").in_order);
  EXPECT_EQ(BlockBytesFor(traits, 0).value(), kPart);
  EXPECT_EQ(BlockBytesFor(traits, 9999 * kPart).value(), kPart);
  EXPECT_EQ(BlockBytesFor(traits, 10000 * kPart).value(), 2 * kPart);
  EXPECT_EQ(BlockBytesFor(traits, 70000 * kPart).value(), 8 * kPart);
  EXPECT_THAT(BlockBytesFor(traits, 80000 * kPart).status(),
              StatusIs(kResourceExhausted));
}

TEST_F(ObjectFiles, AQueueMovesManyRequestsAtOnce) {
  const std::string bytes = Pattern(5 * kPart + 3);
  std::vector<uint8_t> memory(bytes.begin(), bytes.end());
  const absl::StatusOr<File> file =
      fs_.Create("s3://bucket/f", bytes.size(), DirectMode::kAuto);
  ASSERT_OK(file.status());
  absl::StatusOr<std::unique_ptr<IoQueue>> queue = fs_.NewQueue(8, {});
  ASSERT_OK(queue.status());
  std::vector<IoRequest> requests(6);
  std::vector<IoRequest*> done;
  for (uint64_t i = 0; i < requests.size(); ++i) {
    requests[i].op = IoRequest::Op::kWrite;
    requests[i].file = file->handle;
    requests[i].offset = i * kPart;
    requests[i].data = memory.data() + i * kPart;
    requests[i].length = i < 5 ? kPart : 3;
    ASSERT_OK((*queue)->Submit(&requests[i]));
  }
  while ((*queue)->in_flight() > 0) ASSERT_OK((*queue)->Reap(done));
  EXPECT_EQ(done.size(), 6);
  for (const IoRequest* request : done) {
    EXPECT_EQ(request->result, request->length);
    EXPECT_OK(request->error);
  }
  ASSERT_OK(fs_.Sync(*file));
  ASSERT_OK(fs_.Close(*file));
  EXPECT_TRUE(server_.BytesOf("f") == bytes);
}

TEST_F(ObjectFiles, AFailedRequestExplainsWhy) {
  server_.PutBytes("f", Pattern(10));
  const absl::StatusOr<File> file =
      fs_.OpenForRead("s3://bucket/f", DirectMode::kAuto, false);
  ASSERT_OK(file.status());
  absl::StatusOr<std::unique_ptr<IoQueue>> queue = fs_.NewQueue(2, {});
  ASSERT_OK(queue.status());
  uint8_t bytes[10];
  IoRequest request;
  request.file = file->handle;
  request.data = bytes;
  request.length = 10;
  std::vector<IoRequest*> done;
  server_.FailCall(0, absl::UnavailableError("SlowDown"));
  ASSERT_OK((*queue)->Submit(&request));
  ASSERT_OK((*queue)->Reap(done));
  EXPECT_THAT(request.error, StatusIs(kUnavailable, HasSubstr("SlowDown")));
  EXPECT_LT(request.result, 0);
  ASSERT_OK((*queue)->Submit(&request));
  ASSERT_OK((*queue)->Reap(done));
  EXPECT_OK(request.error);
  EXPECT_EQ(request.result, 10);
  EXPECT_OK(fs_.Close(*file));
}

}  // namespace
}  // namespace dcp
