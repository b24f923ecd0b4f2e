// SPDX-License-Identifier: Apache-2.0

#include "server/access/admission.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

constexpr ClientLimits kLimits{
    .num_streams = 2, .memory_bytes = 100, .requests_per_second = 5};

TEST(PeerAddress, OmitsThePort) {
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.7:4711"), "10.0.0.7");
  EXPECT_EQ(PeerAddress("unix:"), "unix");
  EXPECT_EQ(PeerAddress("unix:/run/x:1"), "unix");
}

// A client with one IPv6 address has 2^64 of them.
TEST(PeerAddress, Ipv6IsTheNetwork) {
  for (const char* peer :
       {"ipv6:%5B2001:db8:0:1::7%5D:4711", "ipv6:[2001:db8:0:1:ffff::8]:1"}) {
    EXPECT_EQ(PeerAddress(peer), "2001:db8:0:1::/64") << peer;
  }
  EXPECT_EQ(PeerAddress("ipv6:%5Bfe80::1%25eth0%5D:1"), "fe80::/64");
  EXPECT_EQ(PeerAddress("ipv6:odd:1"), "odd");
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest()
      : access_(*Access::Load({{.path = dir_.path()}}, "")),
        admission_(access_, kLimits) {}

  const testing::TempDir dir_;
  const Access access_;
  Admission admission_;
};

TEST_F(AdmissionTest, ClientsHaveSeparateAccounts) {
  const auto one = admission_.AccountFor("one", absl::Hours(1));
  EXPECT_EQ(admission_.AccountFor("one", absl::Hours(2)), one);
  EXPECT_NE(admission_.AccountFor("two", absl::Hours(1)), one);
}

// New addresses cost nothing: no table grows with them.
TEST_F(AdmissionTest, LimitsTheNumberOfAccounts) {
  const absl::Duration now = absl::Hours(1);
  std::vector<std::shared_ptr<ClientAccount>> held;
  for (int i = 0; i < 10'000; ++i) {
    held.push_back(admission_.AccountFor(absl::StrCat(i), now));
    ASSERT_OK(held.back()->CountRequest(now));
  }
  const auto others = admission_.AccountFor("a", now);
  EXPECT_EQ(admission_.AccountFor("b", now), others);
  // Clients that left long ago make room for others.
  held.clear();
  EXPECT_NE(admission_.AccountFor("a", now + absl::Minutes(1)),
            admission_.AccountFor("b", now + absl::Minutes(1)));
}

}  // namespace
}  // namespace dcp::server
