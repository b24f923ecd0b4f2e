// SPDX-License-Identifier: Apache-2.0
// ObjectStore's contract, with a real server.

#include "dcp/io/s3/s3_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dcp/base/check.h"
#include "dcp/io/s3/s3_settings.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/object_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using testing::ObjectServer;

std::unique_ptr<ObjectStore> OpenRadosgw() {
  ObjectServer::Get();
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  DCP_CHECK(settings.ok(), settings.status().message());
  absl::StatusOr<std::unique_ptr<ObjectStore>> store =
      OpenS3Store(ObjectServer::kBucket, *settings);
  DCP_CHECK(store.ok(), store.status().message());
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(Radosgw, StoreContract,
                         ::testing::Values(OpenRadosgw));

// Other programs give objects names that files cannot have.
TEST(S3Store, HasKeysWithEmptyComponents) {
  const std::unique_ptr<ObjectStore> store = OpenRadosgw();
  ASSERT_OK(Put(*store, "empty//component", "x"));
  const absl::StatusOr<std::vector<ObjectInfo>> listed =
      ListAll(*store, "empty/");
  ASSERT_OK(listed);
  ASSERT_EQ(listed->size(), 1);
  EXPECT_EQ((*listed)[0].key, "empty//component");
  EXPECT_OK(store->Remove({"empty//component"}));
}

}  // namespace
}  // namespace dcp
