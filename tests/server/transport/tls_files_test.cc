// SPDX-License-Identifier: Apache-2.0

#include "server/transport/tls_files.h"

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::Authority;
using ::dcp::testing::CertificateFiles;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::NotNull;

using ::dcp::testing::kInvalid;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() : authority_(dir_, "ca"), files_(authority_.Sign("server")) {
    paths_.cert = files_.cert;
    paths_.key = files_.key;
  }

  TempDir dir_;
  Authority authority_;
  CertificateFiles files_;
  TlsPaths paths_;
};

TEST_F(TlsFilesTest, ReadsAllFiles) {
  paths_.client_ca = authority_.cert();
  ASSERT_OK_AND_ASSIGN(const TlsFiles files, ReadTlsFiles(paths_));
  EXPECT_EQ(files.cert, testing::ReadFile(files_.cert));
  EXPECT_EQ(files.key, testing::ReadFile(files_.key));
  EXPECT_EQ(files.client_ca, testing::ReadFile(authority_.cert()));
  EXPECT_OK(ServerTls::Load(paths_));
}

TEST_F(TlsFilesTest, WithoutACertificateThereIsNoTls) {
  ASSERT_OK_AND_ASSIGN(ServerTls tls, ServerTls::Load({}));
  EXPECT_THAT(tls.credentials().get(), NotNull());
  EXPECT_OK(tls.Reload());
  EXPECT_EQ(tls.expiry(), absl::InfiniteFuture());
}

TEST_F(TlsFilesTest, NamesAKeyOfAnotherCertificate) {
  paths_.key = authority_.Sign("other").key;
  EXPECT_THAT(ReadTlsFiles(paths_),
              StatusIs(kInvalid, AllOf(HasSubstr("other.key: is not the key"),
                                       HasSubstr("server.pem"))));
}

TEST_F(TlsFilesTest, NamesAFileThatIsNotACertificate) {
  const std::string text = dir_.WriteFile("text", "hello");
  const std::string broken = dir_.WriteFile(
      "broken", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n");
  struct Case {
    const char* name;
    std::string TlsPaths::*field;
    std::string path;
    const char* message;
  };
  const Case cases[] = {
      {"no file", &TlsPaths::cert, dir_.Join("none"), "none: No such"},
      {"no PEM", &TlsPaths::key, text, "text: is not PEM"},
      {"broken", &TlsPaths::cert, broken, "broken: is not a cert"},
      {"broken key", &TlsPaths::key, broken, "broken: is not the key"},
      {"broken CA", &TlsPaths::client_ca, broken, "broken: has no"},
      {"directory", &TlsPaths::client_ca, dir_.path(), dir_.path().c_str()},
  };
  for (const Case& c : cases) {
    TlsPaths paths = paths_;
    paths.*c.field = c.path;
    EXPECT_THAT(ServerTls::Load(paths).status(),
                StatusIs(kInvalid, HasSubstr(c.message)))
        << c.name;
  }
}

TEST_F(TlsFilesTest, FailedReloadKeepsTheOldFiles) {
  ASSERT_OK_AND_ASSIGN(ServerTls tls, ServerTls::Load(paths_));
  const absl::Time expiry = tls.expiry();
  EXPECT_GT(expiry, absl::Now());
  EXPECT_LT(expiry, absl::Now() + absl::Hours(2));
  dir_.WriteFile("server.pem", "torn");
  EXPECT_THAT(tls.Reload(), StatusIs(kInvalid, HasSubstr("is not PEM")));
  EXPECT_EQ(tls.expiry(), expiry);
  authority_.Sign("server");
  EXPECT_OK(tls.Reload());
}

}  // namespace
}  // namespace dcp::server
