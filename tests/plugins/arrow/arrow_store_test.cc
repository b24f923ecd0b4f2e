// SPDX-License-Identifier: Apache-2.0
// ArrowStore on this machine's file system, where a stream shows bytes before
// it is closed, and an object must be moved to the final name. Azure and HDFS
// do the same; there is no server for them here.
#include "plugins/arrow/arrow_store.h"

#include <arrow/filesystem/localfs.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plugins/arrow/arrow_error.h"

namespace tessera {
namespace {

class ArrowStoreTest : public ::testing::Test {
 protected:
  ArrowStoreTest()
      : folder_(
            std::string(getenv("TEST_TMPDIR")) + "/" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~ArrowStoreTest() override { std::filesystem::remove_all(folder_); }

  ArrowStore Open() const {
    ArrowBucket bucket;
    bucket.url = "hdfs://node";
    bucket.files = std::make_shared<arrow::fs::LocalFileSystem>();
    bucket.root = folder_;
    bucket.needs_folders = true;
    return ArrowStore(bucket);
  }

  static arrow::Result<std::string> Put(ArrowStore& store,
                                        const std::string& key,
                                        const std::string& text) {
    return store.Put(key, text.data(), static_cast<int64_t>(text.size()));
  }

  static std::set<std::string> Keys(ArrowStore& store,
                                    const std::string& prefix, bool by_folder) {
    std::set<std::string> keys;
    const arrow::Status listed =
        store.List(prefix, by_folder, [&keys](const ArrowObject& object) {
          keys.insert(object.key);
          return true;
        });
    EXPECT_TRUE(listed.ok()) << listed;
    return keys;
  }

  static std::vector<ArrowObject> Uploads(ArrowStore& store,
                                          const std::string& prefix) {
    std::vector<ArrowObject> uploads;
    const arrow::Status listed =
        store.Uploads(prefix, [&uploads](const ArrowObject& upload) {
          uploads.push_back(upload);
          return true;
        });
    EXPECT_TRUE(listed.ok()) << listed;
    return uploads;
  }

  const std::string folder_;
};

TEST_F(ArrowStoreTest, HidesUnfinishedUploads) {
  ArrowStore store = Open();
  const ArrowStore::Upload upload = store.Begin("run/a", "label1").ValueOrDie();
  ASSERT_TRUE(upload.stream->Write("12345", 5).ok());
  EXPECT_EQ(FindCode(store.Head("run/a").status()), Code::kNotFound);
  EXPECT_TRUE(Keys(store, "run/", /*by_folder=*/true).empty());
  ASSERT_EQ(Uploads(store, "run/").size(), 1);
  EXPECT_EQ(Uploads(store, "run/")[0].key, "run/a");
  EXPECT_EQ(Uploads(store, "run/")[0].etag, upload.id);
  EXPECT_TRUE(Uploads(store, "other/").empty());
  ASSERT_TRUE(store.Finish(upload).ok());
  EXPECT_EQ(store.Head("run/a").ValueOrDie().size, 5);
  EXPECT_EQ(store.Head("run/a").ValueOrDie().label, "");
  EXPECT_TRUE(Uploads(store, "").empty());
}

TEST_F(ArrowStoreTest, ListsAndRemovesUploadsAfterAKilledWriter) {
  ArrowStore store = Open();
  ASSERT_TRUE(Put(store, "run/a", "old").ok());
  std::filesystem::copy(folder_ + "/run/a",
                        folder_ + "/run/a.tessera-upload-0123456789abcdef");
  const std::vector<ArrowObject> left = Uploads(store, "run/");
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left[0].key, "run/a");
  EXPECT_TRUE(store.RemoveUpload(left[0].key, left[0].etag).ok());
  EXPECT_TRUE(Uploads(store, "").empty());
  EXPECT_EQ(Keys(store, "", /*by_folder=*/false),
            std::set<std::string>{"run/a"});
}

TEST_F(ArrowStoreTest, AbortedUploadLeavesNothing) {
  ArrowStore store = Open();
  const ArrowStore::Upload upload = store.Begin("run/a", "label1").ValueOrDie();
  ASSERT_TRUE(upload.stream->Write("12345", 5).ok());
  EXPECT_TRUE(store.Abort(upload).ok());
  EXPECT_TRUE(Uploads(store, "").empty());
  EXPECT_TRUE(Keys(store, "", /*by_folder=*/false).empty());
}

TEST_F(ArrowStoreTest, RefusesReplacementInTwoSteps) {
  ArrowStore store = Open();
  const std::string etag = Put(store, "a", "old").ValueOrDie();
  const arrow::Status put = Put(store, "a", "new").status();
  EXPECT_EQ(FindCode(put), Code::kFailedPrecondition);
  EXPECT_NE(put.message().find("replaces none"), std::string::npos);
  char text[3] = {};
  EXPECT_TRUE(store.Get("a", etag, 0, text, 3).ok());
  EXPECT_EQ(std::string(text, 3), "old");
  EXPECT_TRUE(Uploads(store, "").empty());
}

TEST_F(ArrowStoreTest, ListsByFolderOrAllBelow) {
  ArrowStore store = Open();
  for (const char* const key : {"x/b/2", "x/a", "x/b/1", "x/c/d/1", "xy"}) {
    ASSERT_TRUE(Put(store, key, "1").ok());
  }
  EXPECT_EQ(Keys(store, "x/", /*by_folder=*/true),
            (std::set<std::string>{"x/a", "x/b/", "x/c/"}));
  EXPECT_EQ(Keys(store, "x/b", /*by_folder=*/false),
            (std::set<std::string>{"x/b/1", "x/b/2"}));
  EXPECT_EQ(Keys(store, "x", /*by_folder=*/true),
            (std::set<std::string>{"x/", "xy"}));
  EXPECT_TRUE(Keys(store, "z/", /*by_folder=*/true).empty());
}

TEST_F(ArrowStoreTest, ReaderIsToldAboutAReplacement) {
  ArrowStore store = Open();
  const std::string etag = Put(store, "a", "12345").ValueOrDie();
  char text[5];
  EXPECT_TRUE(store.Get("a", etag, 1, text, 2).ok());
  EXPECT_EQ(FindCode(store.Get("a", etag, 3, text, 3)), Code::kUnavailable);
  ASSERT_TRUE(Open().Remove("a").ok());
  ASSERT_TRUE(Put(store, "a", "123456").ok());
  EXPECT_EQ(FindCode(store.Get("a", etag, 1, text, 2)),
            Code::kFailedPrecondition);
  EXPECT_TRUE(store.Remove("a").ok());
  EXPECT_TRUE(store.Remove("a").ok());
}

}  // namespace
}  // namespace tessera
