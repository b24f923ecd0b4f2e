// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_object_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "dcp/io/object/object_store.h"
#include "tests/dcp/io/object/store_contract.h"
#include "tests/testing/status_matchers.h"

namespace dcp::testing {
namespace {

using ::absl::StatusCode::kNotFound;
using ::absl::StatusCode::kUnavailable;
using ::testing::ElementsAre;

TEST(SimObjectServer, ALostAnswerLeavesItsEffect) {
  SimObjectServer server;
  const std::unique_ptr<ObjectStore> client = server.NewClient();
  server.FailCall(0, absl::UnavailableError("lost"), /*happens=*/true);
  EXPECT_THAT(Put(*client, "a", "1"), StatusIs(kUnavailable));
  server.FailCall(1, absl::UnavailableError("refused"));
  EXPECT_OK(client->Head("a").status());
  EXPECT_THAT(Put(*client, "b", "1"), StatusIs(kUnavailable));
  EXPECT_THAT(server.Keys(), ElementsAre("a"));
}

TEST(SimObjectServer, ADeadClientStaysDeadAndANewOneLives) {
  bool happened[2] = {false, false};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimObjectServer server({.seed = seed});
    const std::unique_ptr<ObjectStore> client = server.NewClient();
    server.KillClientsAfter(1);
    EXPECT_OK(Put(*client, "a", "1"));
    EXPECT_THAT(Put(*client, "b", "1"), StatusIs(kUnavailable));
    EXPECT_THAT(client->Head("a").status(), StatusIs(kUnavailable));
    EXPECT_TRUE(server.clients_died());
    server.Heal();
    const std::unique_ptr<ObjectStore> next = server.NewClient();
    EXPECT_OK(next->Head("a").status());
    EXPECT_THAT(client->Head("a").status(), StatusIs(kUnavailable));
    happened[server.num_objects() == 2] = true;
  }
  EXPECT_TRUE(happened[0] && happened[1]);
}

TEST(SimObjectServer, PagesCoverEverythingOnce) {
  SimObjectServer server({.page_size = 2});
  for (const char* key : {"a/1", "a/2", "a/3", "b", "c/1", "d", "e/1/2"}) {
    server.PutBytes(key, "x");
  }
  const std::unique_ptr<ObjectStore> client = server.NewClient();
  std::vector<std::string> keys;
  std::vector<std::string> folders;
  std::string after;
  do {
    const absl::StatusOr<ObjectPage> page = client->List("", true, after);
    ASSERT_OK(page.status());
    for (const ObjectInfo& object : page->objects) keys.push_back(object.key);
    folders.insert(folders.end(), page->folders.begin(), page->folders.end());
    after = page->next;
  } while (!after.empty());
  EXPECT_THAT(keys, ElementsAre("b", "d"));
  EXPECT_THAT(folders, ElementsAre("a/", "c/", "e/"));
  EXPECT_THAT(client->Head("a").status(), StatusIs(kNotFound));
}

std::unique_ptr<ObjectStore> OpenSim() {
  static SimObjectServer server(
      {.page_size = 1000, .first_ns = absl::GetCurrentTimeNanos()});
  return server.NewClient();
}

}  // namespace
}  // namespace dcp::testing

namespace dcp {

INSTANTIATE_TEST_SUITE_P(Sim, StoreContract,
                         ::testing::Values(testing::OpenSim));

}  // namespace dcp
