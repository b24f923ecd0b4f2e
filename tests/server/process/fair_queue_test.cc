// SPDX-License-Identifier: Apache-2.0
#include "server/process/fair_queue.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp::server {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> PopAll(FairQueue<int64_t>& queue) {
  std::vector<int64_t> jobs;
  while (const std::optional<int64_t> job = queue.Pop()) jobs.push_back(*job);
  return jobs;
}

TEST(FairQueue, KeepsTheOrderOfOneClient) {
  FairQueue<int64_t> queue;
  for (const int64_t job : {1, 2, 3}) queue.Push("a", job);
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_THAT(PopAll(queue), ElementsAre(1, 2, 3));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue<int64_t> queue;
  for (const int64_t job : {1, 2, 3, 4}) queue.Push("a", job);
  queue.Push("b", 10);
  queue.Push("c", 20);
  queue.Push("c", 21);
  EXPECT_THAT(PopAll(queue), ElementsAre(1, 10, 20, 2, 21, 3, 4));
}

TEST(FairQueue, ALaterClientIsNext) {
  FairQueue<int64_t> queue;
  for (const int64_t job : {1, 2, 3}) queue.Push("m", job);
  EXPECT_EQ(queue.Pop(), 1);
  queue.Push("b", 10);
  EXPECT_THAT(PopAll(queue), ElementsAre(10, 2, 3));
}

TEST(FairQueue, SkipsBlockedClients) {
  FairQueue<int64_t> queue;
  for (const int64_t job : {1, 2}) queue.Push("a", job);
  queue.Push("c", 20);
  const auto not_a = [](const std::string& client) { return client != "a"; };
  EXPECT_EQ(queue.PopIf(not_a), 20);
  EXPECT_EQ(queue.PopIf(not_a), std::nullopt);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.size("a"), 2u);
  EXPECT_EQ(queue.size("c"), 0u);
  EXPECT_THAT(PopAll(queue), ElementsAre(1, 2));
}

TEST(FairQueue, RemovesPresentItems) {
  FairQueue<int64_t> queue;
  for (const int64_t job : {1, 2, 3}) queue.Push("a", job);
  EXPECT_TRUE(queue.Remove("a", 2));
  EXPECT_FALSE(queue.Remove("a", 2));
  EXPECT_FALSE(queue.Remove("b", 1));
  EXPECT_THAT(PopAll(queue), ElementsAre(1, 3));
}

}  // namespace
}  // namespace dcp::server
