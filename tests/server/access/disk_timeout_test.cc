// SPDX-License-Identifier: Apache-2.0

#include "server/access/disk_timeout.h"

#include "dcp/base/error_place.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rpc_status.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DiskTimeoutError, NamesPathRootAndTime) {
  const Client client("me", {{.path = "/data", .real_path = "/mnt/x"}});
  const absl::Status status =
      DiskTimeoutError(client, "/mnt/x/step-1", absl::Seconds(90));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/mnt/x/step-1: the file system of root /data "
                                 "has not answered for 1m30s")));
  EXPECT_EQ(StatusPlace(status).path, "/mnt/x/step-1");
  EXPECT_GT(RetryAfterMs(status), 0);
}

}  // namespace
}  // namespace dcp::server
