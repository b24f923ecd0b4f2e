// SPDX-License-Identifier: Apache-2.0

#include "server/access/access.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

using ::dcp::testing::kDenied;
using ::dcp::testing::kInvalid;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;

// The output of sha256sum for "alice" and "bob".
constexpr char kAlice[] =
    "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
constexpr char kBob[] =
    "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9";

// data/ with a checkpoint, and files outside.
class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    // If the test's folder is below a link, the returned paths do not contain
    // it.
    base_ = std::filesystem::canonical(dir_.path()).string();
    dir_.WriteFile("data/step-1/.metadata", "x");
    dir_.WriteFile("secret/key", "x");
    dir_.WriteFile("data-2/other", "x");
  }

  std::string Path(absl::string_view name) const {
    return absl::StrCat(base_, "/", name);
  }

  void Link(const std::string& to, absl::string_view name) {
    ASSERT_EQ(symlink(to.c_str(), Path(name).c_str()), 0);
  }

  Access LoadRoots(bool writable = true) {
    absl::StatusOr<Access> access =
        Access::Load({{.path = Path("data"), .writable = writable}}, "");
    EXPECT_OK(access);
    return *std::move(access);
  }

  absl::StatusOr<Access> LoadTokens(absl::string_view text) {
    return Access::Load({{.path = Path("data"), .writable = true},
                         {.path = Path("data-2"), .writable = false}},
                        dir_.WriteFile("tokens", text));
  }

  static const Client& Anyone(const Access& access) {
    return **access.AuthenticateToken("");
  }

  TempDir dir_;
  std::string base_;
};

TEST_F(AccessTest, AllowsPathsBelowARoot) {
  const Access access = LoadRoots();
  const Client& client = Anyone(access);
  EXPECT_EQ(client.name(), "anonymous");
  const std::string path = Path("data/step-1");
  EXPECT_THAT(client.CheckRead(path), IsOkAndHolds(path));
  EXPECT_THAT(client.CheckRead(Path("data")), IsOkAndHolds(Path("data")));
  EXPECT_THAT(client.CheckRead(Path("data//step-1/")), IsOkAndHolds(path));
  EXPECT_THAT(client.CheckRead(Path("data/none/x")),
              IsOkAndHolds(Path("data/none/x")));
  EXPECT_THAT(client.CheckWrite(Path("data/new/deep")),
              IsOkAndHolds(Path("data/new/deep")));
}

TEST_F(AccessTest, RefusesHostilePaths) {
  const Access access = LoadRoots();
  const Client& client = Anyone(access);
  const std::string data = Path("data");
  struct Case {
    const char* name;
    std::string path;
    absl::StatusCode code;
  };
  const Case cases[] = {
      {"empty", "", kInvalid},
      {"relative", "data/step-1", kInvalid},
      {"dots", data + "/../secret/key", kInvalid},
      {"dots at the end", data + "/step-1/..", kInvalid},
      {"dot", data + "/./step-1", kInvalid},
      {"zero byte", data + std::string("/step-1\0/x", 10), kInvalid},
      {"long", "/" + std::string(5000, 'x'), kInvalid},
      {"long name", data + "/" + std::string(300, 'x'), kInvalid},
      {"outside", Path("secret/key"), kDenied},
      {"outside and not there", Path("secret/none"), kDenied},
      {"prefix of a name", Path("data-2/other"), kDenied},
      {"parent", base_, kDenied},
      {"root of all", "/", kDenied},
      {"proc", "/proc/self/environ", kDenied},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(client.CheckRead(c.path), StatusIs(c.code)) << c.name;
    EXPECT_THAT(client.CheckWrite(c.path), StatusIs(c.code)) << c.name;
  }
}

TEST_F(AccessTest, ObjectStoreRootsAreNames) {
  const auto access =
      Access::Load({{.path = "s3://bucket/runs/", .writable = true},
                    {.path = "s3://whole", .writable = false}},
                   "");
  ASSERT_OK(access.status());
  const Client& client = Anyone(*access);
  EXPECT_THAT(client.CheckRead("s3://bucket/runs/a/"),
              IsOkAndHolds("s3://bucket/runs/a"));
  EXPECT_THAT(client.CheckWrite("s3://bucket/runs/a"),
              IsOkAndHolds("s3://bucket/runs/a"));
  EXPECT_THAT(client.CheckRead("s3://whole/x"), IsOkAndHolds("s3://whole/x"));
  for (const char* path :
       {"s3://bucket/runs", "s3://whole/x", "s3://bucket/runs-2/a",
        "s3://bucket", "s3://bucket/other", "s3://bucket2/runs/a",
        "s3://whole2/x", "gs://bucket/runs/a", "/bucket/runs/a",
        "s3://bucket/runs%2f..%2fother"}) {
    EXPECT_THAT(client.CheckWrite(path), StatusIs(kDenied)) << path;
  }
  for (const char* path :
       {"s3://bucket/runs/../other", "s3://bucket/runs/a/..",
        "s3://bucket/runs/./a", "s3://bucket/runs//a", "s3://bucket//runs/a",
        "s3:///runs/a", "s3://bucket/runs/\na", "S3://bucket/runs/a",
        "s3:bucket/runs/a", "http://bucket/runs/a", "bucket/runs/a"}) {
    EXPECT_THAT(client.CheckRead(path), StatusIs(kInvalid)) << path;
  }
  for (const char* path : {"s3://bucket/runs/a?endpoint_override=evil:80",
                           "s3://bucket?/runs/a", "s3://bucket/runs?"}) {
    EXPECT_THAT(client.CheckRead(path), StatusIs(kInvalid, HasSubstr("query")))
        << path;
  }
  EXPECT_THAT(Access::Load({{.path = "s3://bucket/../x"}}, "").status(),
              StatusIs(kInvalid));
}

TEST_F(AccessTest, RefusesLinksThatLeadOut) {
  Link(Path("secret"), "data/out");
  Link("../secret/key", "data/out-file");
  Link(Path("nowhere"), "data/dangling");
  Link("loop", "data/loop");
  Link(Path("secret/none"), "data/out-none");
  const Access access = LoadRoots();
  const Client& client = Anyone(access);
  std::string first;
  for (const char* name :
       {"data/out", "data/out/key", "data/out/none", "data/out/key/x",
        "data/out-file", "data/dangling", "data/dangling/x", "data/loop",
        "data/loop/x", "data/out-none"}) {
    const std::string path = Path(name);
    const absl::Status read = client.CheckRead(path).status();
    EXPECT_THAT(read, StatusIs(kDenied, HasSubstr(path)));
    EXPECT_THAT(client.CheckWrite(path), StatusIs(kDenied));
    // Files outside give the same answer whether they exist or not.
    const std::string message(read.message());
    const std::string rest = message.substr(message.find(path) + path.size());
    if (first.empty()) first = rest;
    EXPECT_EQ(rest, first) << name;
  }
}

TEST_F(AccessTest, FollowsLinksThatStayInside) {
  Link("step-1", "data/latest");
  const Access access = LoadRoots();
  EXPECT_THAT(Anyone(access).CheckRead(Path("data/latest/.metadata")),
              IsOkAndHolds(Path("data/step-1/.metadata")));
}

absl::StatusOr<std::string> LocateEntry(const Client& client, PathUse use,
                                        const std::string& path) {
  DCP_ASSIGN_OR_RETURN(const Location location, client.Locate(path, use));
  return location.path;
}

TEST_F(AccessTest, DoesNotFollowALinkAsAnEntry) {
  Link(Path("secret"), "data/out");
  Link("step-1", "data/latest");
  const Access access = LoadRoots();
  const Client& client = Anyone(access);
  for (const char* name : {"data/out", "data/latest", "data/none"}) {
    EXPECT_THAT(LocateEntry(client, PathUse::kReadEntry, Path(name)),
                IsOkAndHolds(Path(name)));
    EXPECT_THAT(LocateEntry(client, PathUse::kWriteEntry, Path(name)),
                IsOkAndHolds(Path(name)));
  }
  EXPECT_THAT(LocateEntry(client, PathUse::kReadEntry, Path("data/latest/x")),
              IsOkAndHolds(Path("data/step-1/x")));
  EXPECT_THAT(LocateEntry(client, PathUse::kReadEntry, Path("data/out/key")),
              StatusIs(kDenied));
  EXPECT_THAT(LocateEntry(client, PathUse::kWriteEntry, Path("data/out/key")),
              StatusIs(kDenied));
  EXPECT_THAT(LocateEntry(client, PathUse::kReadEntry, Path("data")),
              IsOkAndHolds(Path("data")));
  EXPECT_THAT(LocateEntry(client, PathUse::kWriteEntry, Path("data")),
              StatusIs(kDenied));
  EXPECT_THAT(LocateEntry(client, PathUse::kReadEntry, base_),
              StatusIs(kDenied));
}

TEST_F(AccessTest, ARootMayBeALink) {
  Link("data", "shortcut");
  absl::StatusOr<Access> access =
      Access::Load({{.path = Path("shortcut")}}, "");
  ASSERT_OK(access);
  for (const char* name : {"shortcut/step-1", "data/step-1"}) {
    EXPECT_THAT(Anyone(*access).CheckRead(Path(name)),
                IsOkAndHolds(Path("shortcut/step-1")));
  }
}

TEST_F(AccessTest, RefusesToWriteReadOnlyRootsAndRootsThemselves) {
  const Access read_only = LoadRoots(false);
  EXPECT_OK(Anyone(read_only).CheckRead(Path("data/step-1")));
  EXPECT_THAT(Anyone(read_only).CheckWrite(Path("data/step-2")),
              StatusIs(kDenied, HasSubstr("may not be written")));
  const Access writable = LoadRoots();
  EXPECT_THAT(Anyone(writable).CheckWrite(Path("data")), StatusIs(kDenied));
}

TEST_F(AccessTest, RootsMustBeDirectories) {
  for (const char* name : {"none", "secret/key"}) {
    EXPECT_THAT(Access::Load({{.path = Path(name)}}, ""),
                StatusIs(kInvalid, HasSubstr(Path(name))));
  }
}

TEST_F(AccessTest, TokensNameClientsAndTheirRoots) {
  absl::StatusOr<Access> access = LoadTokens(absl::StrCat(
      "# who may\n\nalice ", kAlice, " write=", Path("data"), "  # all\n",
      "bob\t", kBob, " read=", Path("data/step-1"), "\n"));
  ASSERT_OK(access);
  ASSERT_OK_AND_ASSIGN(const Client* alice, access->AuthenticateToken("alice"));
  EXPECT_EQ(alice->name(), "alice");
  EXPECT_OK(alice->CheckWrite(Path("data/new")));
  EXPECT_THAT(alice->CheckRead(Path("data-2/other")), StatusIs(kDenied));
  ASSERT_OK_AND_ASSIGN(const Client* bob, access->AuthenticateToken("bob"));
  EXPECT_OK(bob->CheckRead(Path("data/step-1/.metadata")));
  EXPECT_THAT(bob->CheckRead(Path("data/step-2")), StatusIs(kDenied));
  EXPECT_THAT(bob->CheckWrite(Path("data/step-1/x")), StatusIs(kDenied));
  for (const char* wrong : {"", "carol", "alice ", "Alice"}) {
    EXPECT_THAT(access->AuthenticateToken(wrong), StatusIs(kUnauthenticated));
  }
}

// Work that a client left behind is done with the rights that the client has
// now.
TEST_F(AccessTest, FindsClientsByName) {
  absl::StatusOr<Access> access =
      LoadTokens(absl::StrCat("alice ", kAlice, " read=", Path("data"),
                              "\nalice ", kBob, " write=", Path("data"), "\n"));
  ASSERT_OK(access);
  const Client* const alice = access->FindClient("alice");
  ASSERT_NE(alice, nullptr);
  EXPECT_OK(alice->CheckWrite(Path("data/new")));  // the right of the last line
  EXPECT_EQ(access->FindClient("bob"), nullptr);
  EXPECT_EQ(access->FindClient("anonymous"), nullptr);
  const Access open = LoadRoots();
  EXPECT_NE(open.FindClient("anonymous"), nullptr);
  EXPECT_EQ(open.FindClient("alice"), nullptr);
}

TEST_F(AccessTest, AClientWithoutRootsMayReadAll) {
  absl::StatusOr<Access> access = LoadTokens(absl::StrCat("alice ", kAlice));
  ASSERT_OK(access);
  ASSERT_OK_AND_ASSIGN(const Client* alice, access->AuthenticateToken("alice"));
  EXPECT_OK(alice->CheckRead(Path("data/step-1")));
  EXPECT_OK(alice->CheckRead(Path("data-2/other")));
  EXPECT_THAT(alice->CheckWrite(Path("data/new")), StatusIs(kDenied));
  // The server itself may do everything that the roots allow.
  EXPECT_OK(access->server().CheckWrite(Path("data/new")));
  EXPECT_THAT(access->server().CheckWrite(Path("data-2/new")),
              StatusIs(kDenied));
}

TEST_F(AccessTest, NamesMistakesWithTheLine) {
  struct Case {
    const char* name;
    std::string text;
    std::string message;
  };
  const std::string alice = absl::StrCat("alice ", kAlice);
  const Case cases[] = {
      {"no hash", "alice\n", ":1: requires NAME SHA256"},
      {"a token", "\nalice hunter2\n", ":2: the hash of alice is not 64"},
      {"no hexadecimal", "alice " + std::string(64, 'x'), "is not 64"},
      {"other word", alice + " root", ":1: 'root' is not admin"},
      {"not below", alice + " read=" + Path("secret"), "does not lie below"},
      {"read-only", alice + " write=" + Path("data-2"), "read-only"},
      {"no directory", alice + " read=" + Path("data/none"), "No such file"},
      {"twice", alice + "\n" + "bob " + kAlice, ":2: bob has the same token"},
      {"nobody", "# none\n", "names no client"},
  };
  for (const Case& c : cases) {
    const absl::Status status = LoadTokens(c.text).status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(c.message))) << c.name;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hunter2")));
  }
}

TEST_F(AccessTest, RefusesAFileThatOthersMayChange) {
  const std::string path =
      dir_.WriteFile("tokens", absl::StrCat("alice ", kAlice));
  const std::vector<Root> roots = {{.path = Path("data")}};
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_THAT(Access::Load(roots, path),
              StatusIs(kInvalid, HasSubstr("everyone may change it")));
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);
  EXPECT_THAT(Access::Load(roots, path),
              StatusIs(kInvalid, HasSubstr("the group of the file may")));
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_OK(Access::Load(roots, path));
  EXPECT_THAT(Access::Load(roots, Path("none")),
              StatusIs(kInvalid, HasSubstr("No such file")));
  EXPECT_THAT(Access::Load(roots, Path("data")), StatusIs(kInvalid));
}

TEST_F(AccessTest, ReloadsTokens) {
  const std::string file =
      dir_.WriteFile("tokens", absl::StrCat("alice ", kAlice));
  ASSERT_OK_AND_ASSIGN(
      Access access,
      Access::Load({{.path = dir_.Join("data"), .writable = true}}, file));
  ASSERT_OK_AND_ASSIGN(const Client* alice, access.AuthenticateToken("alice"));
  dir_.WriteFile("tokens", absl::StrCat("bob ", kBob));
  EXPECT_OK(access.AuthenticateToken("alice"));
  ASSERT_OK(access.Reload());
  EXPECT_THAT(access.AuthenticateToken("alice"),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_OK(access.AuthenticateToken("bob"));
  EXPECT_EQ(access.FindClient("alice"), nullptr);
  EXPECT_EQ(alice->name(), "alice") << "calls that go on still use it";
  dir_.WriteFile("tokens", "no line\n");
  EXPECT_THAT(access.Reload(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("tokens:1")));
  EXPECT_OK(access.AuthenticateToken("bob"));
}

TEST_F(AccessTest, RevokesOnlyClientsWithChangedRights) {
  const std::string alice = absl::StrCat("alice ", kAlice);
  const std::string bob = absl::StrCat("bob ", kBob);
  dir_.WriteFile("tokens", absl::StrCat(alice, "\n", bob));
  ASSERT_OK_AND_ASSIGN(Access access,
                       Access::Load({{.path = Path("data")}}, Path("tokens")));
  const Client* const first = access.FindClient("alice");
  const Client* const other = access.FindClient("bob");
  const Client copy = *first;
  dir_.WriteFile("tokens",
                 absl::StrCat(bob, "\n", alice, " read=", Path("secret")));
  EXPECT_FALSE(access.Reload().ok()) << "it is not below a root";
  EXPECT_FALSE(first->is_revoked());
  dir_.WriteFile("tokens", absl::StrCat(bob, "\n", alice, " admin"));
  ASSERT_OK(access.Reload());
  EXPECT_EQ(access.FindClient("bob"), other);
  EXPECT_FALSE(other->is_revoked());
  EXPECT_NE(access.FindClient("alice"), first);
  EXPECT_TRUE(first->is_revoked());
  EXPECT_TRUE(copy.is_revoked());
  const std::string path = Path("data");
  EXPECT_THAT(copy.CheckRead(path),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("the rights of alice")));
  EXPECT_OK(copy.Unrevoked().CheckRead(path));
  EXPECT_OK(access.FindClient("alice")->CheckRead(path));
}

}  // namespace
}  // namespace dcp::server
