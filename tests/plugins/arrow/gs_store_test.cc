// SPDX-License-Identifier: Apache-2.0
// The plugin with a real server for Google's protocol, and errors when no
// server can be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/plugin/load_plugin.h"
#include "dcp/io/plugin/plugin_store.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/gs_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::absl::StatusCode::kFailedPrecondition;
using ::absl::StatusCode::kInvalidArgument;
using ::absl::StatusCode::kNotFound;
using ::absl::StatusCode::kUnavailable;
using ::dcp::testing::GsServer;
using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<ObjectStore>> Open(absl::string_view path) {
  GsServer::Get();
  const absl::StatusOr<const tessera_plugin*> plugin =
      LoadPlugin("libtessera-arrow.so");
  DCP_CHECK(plugin.ok(), plugin.status().message());
  const absl::StatusOr<ObjectUrl> url = ParseObjectUrl(path);
  DCP_CHECK(url.ok(), path);
  return OpenPluginStore(**plugin, *url);
}

std::unique_ptr<ObjectStore> OpenGs() {
  auto store = Open("gs://tessera");
  DCP_CHECK(store.ok(), store.status().message());
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(Gs, StoreContract, ::testing::Values(OpenGs));

// Destroying a Google stream would finish it.
TEST(GsStore, AbortedUploadsNeverAppear) {
  const std::string text = PatternedText(kMinObjectPartBytes, 5);
  {
    const std::unique_ptr<ObjectStore> store = OpenGs();
    ASSERT_OK(Put(*store, "aborted", "old"));
    const std::string id = *store->Begin("aborted", "");
    ASSERT_OK(PutPart(*store, "aborted", id, 1, text));
    ASSERT_OK(store->Abort("aborted", id));
    ASSERT_OK(PutPart(*store, "left", *store->Begin("left", ""), 1, text));
  }
  const std::unique_ptr<ObjectStore> store = OpenGs();
  const absl::StatusOr<ObjectInfo> info = store->Head("aborted");
  ASSERT_OK(info);
  EXPECT_THAT(Get(*store, "aborted", info->etag, 0, 3), IsOkAndHolds("old"));
  EXPECT_THAT(store->Head("left"), StatusIs(kNotFound));
}

TEST(GsStore, ReaderIsToldAboutAReplacementBetweenReads) {
  const std::unique_ptr<ObjectStore> store = OpenGs();
  const std::string before = *Put(*store, "replaced", "before");
  EXPECT_THAT(Get(*store, "replaced", before, 0, 3), IsOkAndHolds("bef"));
  const std::unique_ptr<ObjectStore> other = OpenGs();
  ASSERT_OK(Put(*other, "replaced", "after!"));
  EXPECT_THAT(Get(*store, "replaced", before, 3, 3),
              StatusIs(kFailedPrecondition, HasSubstr("replaced")));
  ASSERT_OK(other->Remove({"replaced"}));
  EXPECT_THAT(Get(*store, "replaced", before, 3, 3),
              StatusIs(kNotFound, HasSubstr("gs://tessera/replaced: get")));
}

TEST(GsStore, NamesAMissingBucket) {
  EXPECT_THAT(Open("gs://absent-bucket/a").status(),
              StatusIs(kNotFound, AllOf(HasSubstr("gs://absent-bucket: open"),
                                        HasSubstr("name of the bucket"))));
}

// A port that nobody listens to; the client tries again for a while.
TEST(GsStore, NamesAServerThatDoesNotAnswer) {
  GsServer::Get();
  const std::string before = getenv("STORAGE_EMULATOR_HOST");
  setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1", 1);
  setenv("TESSERA_GS_RETRY_SECONDS", "1", 1);
  EXPECT_THAT(
      Open("gs://tessera/a").status(),
      StatusIs(kUnavailable, AllOf(HasSubstr("gs://tessera: open"),
                                   HasSubstr("Could not connect"),
                                   HasSubstr("STORAGE_EMULATOR_HOST"))));
  unsetenv("TESSERA_GS_RETRY_SECONDS");
  setenv("STORAGE_EMULATOR_HOST", before.c_str(), 1);
}

TEST(GsStore, NamesWrongSettings) {
  setenv("TESSERA_GS_RETRY_SECONDS", "soon", 1);
  EXPECT_THAT(
      Open("gs://tessera/a").status(),
      StatusIs(kInvalidArgument, HasSubstr("TESSERA_GS_RETRY_SECONDS=soon")));
  unsetenv("TESSERA_GS_RETRY_SECONDS");
}

TEST(AbfsStore, RequiresAnAccount) {
  unsetenv("AZURE_STORAGE_ACCOUNT");
  EXPECT_THAT(
      Open("abfs://container/a").status(),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("abfs://container: open"),
                                       HasSubstr("AZURE_STORAGE_ACCOUNT"))));
  EXPECT_THAT(
      Open("abfss://account.dfs.core.windows.net/a").status(),
      StatusIs(kInvalidArgument, HasSubstr("the name of the container")));
}

TEST(HdfsStore, RequiresHadoopsLibrary) {
  EXPECT_THAT(
      Open("hdfs://node:8020/a").status(),
      StatusIs(kFailedPrecondition, AllOf(HasSubstr("hdfs://node:8020: open"),
                                          HasSubstr("HADOOP_HOME"))));
}

}  // namespace
}  // namespace dcp
