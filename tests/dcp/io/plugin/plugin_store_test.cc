// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/plugin/plugin_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/io/object/pending_calls.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/dcp/io/plugin/memory_plugin.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kCancelled;
using ::absl::StatusCode::kFailedPrecondition;
using ::absl::StatusCode::kNotFound;
using ::absl::StatusCode::kPermissionDenied;
using ::absl::StatusCode::kResourceExhausted;
using ::dcp::testing::FailNextWrite;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::MemoryPlugin;
using ::dcp::testing::NumOpenUploads;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<ObjectStore>> Open(absl::string_view url) {
  const absl::StatusOr<ObjectUrl> parsed = ParseObjectUrl(url);
  DCP_CHECK(parsed.ok(), url);
  return OpenPluginStore(MemoryPlugin(), *parsed);
}

std::unique_ptr<ObjectStore> OpenMemory() { return *Open("gs://memory"); }

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(OpenMemory));

TEST(PluginStore, NamesItselfByItsUrl) {
  EXPECT_EQ(OpenMemory()->url(), "gs://memory");
  EXPECT_EQ((*Open("hdfs://node:8020/a/b"))->url(), "hdfs://node:8020");
  EXPECT_THAT(Open("gs://forbidden/a").status(),
              StatusIs(kPermissionDenied, HasSubstr("gs://forbidden")));
}

// As a lane sends them: all at once.
TEST(PluginStore, WritesConcurrentPartsInOrder) {
  constexpr uint32_t kParts = 100;
  constexpr uint32_t kUploads = 8;
  const std::unique_ptr<ObjectStore> store = OpenMemory();
  const std::string text = PatternedText(kParts * 100, 1);
  std::vector<std::string> ids;
  PendingCalls calls(kParts * kUploads);
  for (uint32_t i = 0; i < kUploads; ++i) {
    ids.push_back(*store->Begin(absl::StrCat("at/once/", i), ""));
  }
  std::vector<ObjectPart> parts;
  for (uint32_t part = 1; part <= kParts; ++part) {
    parts.push_back({.number = part, .size = 100, .etag = ""});
    for (uint32_t i = 0; i < kUploads; ++i) {
      ASSERT_OK(calls.Enter());
      store->PutPart(absl::StrCat("at/once/", i), ids[i], part,
                     AsBytes(text).subspan((part - 1) * 100, 100), {},
                     [&calls](const absl::StatusOr<ObjectPart>& made) {
                       calls.Leave(made.status());
                     });
    }
  }
  EXPECT_OK(calls.Wait());
  for (uint32_t i = 0; i < kUploads; ++i) {
    const std::string key = absl::StrCat("at/once/", i);
    EXPECT_OK(store->Finish(key, ids[i], parts, /*replaces=*/true));
    const absl::StatusOr<ObjectInfo> info = store->Head(key);
    ASSERT_OK(info);
    EXPECT_THAT(Get(*store, key, info->etag, 0, text.size()),
                IsOkAndHolds(text));
  }
}

TEST(PluginStore, AnUploadFailsAfterAFailedPart) {
  const std::unique_ptr<ObjectStore> store = OpenMemory();
  const std::string id = *store->Begin("broken", "");
  FailNextWrite();
  EXPECT_THAT(PutPart(*store, "broken", id, 1, "one"),
              StatusIs(kResourceExhausted));
  EXPECT_THAT(PutPart(*store, "broken", id, 2, "two"),
              StatusIs(kResourceExhausted));
  EXPECT_THAT(store->Finish("broken", id, {{1, 3, ""}, {2, 3, ""}},
                            /*replaces=*/true),
              StatusIs(kFailedPrecondition, HasSubstr("not all 2 parts")));
  EXPECT_THAT(store->Head("broken"), StatusIs(kNotFound));
  EXPECT_EQ(NumOpenUploads(), 0);
}

TEST(PluginStore, AStoppedPartIsNotWritten) {
  const std::unique_ptr<ObjectStore> store = OpenMemory();
  const std::string id = *store->Begin("stopped", "");
  std::stop_source stop;
  stop.request_stop();
  PendingCalls call(1);
  ASSERT_OK(call.Enter());
  store->PutPart("stopped", id, 1, AsBytes("one"), stop.get_token(),
                 [&call](const absl::StatusOr<ObjectPart>& made) {
                   call.Leave(made.status());
                 });
  EXPECT_THAT(call.Wait(), StatusIs(kCancelled));
  EXPECT_OK(store->Abort("stopped", id));
}

TEST(PluginStore, ADestroyedStoreAbortsItsUploads) {
  {
    const std::unique_ptr<ObjectStore> store = OpenMemory();
    const std::string id = *store->Begin("left", "");
    EXPECT_OK(PutPart(*store, "left", id, 1, "one"));
    EXPECT_EQ(NumOpenUploads(), 1);
  }
  EXPECT_EQ(NumOpenUploads(), 0);
}

}  // namespace
}  // namespace dcp
