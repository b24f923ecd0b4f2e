// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "tests/testing/kept_environment.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;

using ::dcp::testing::kInvalid;

class S3SettingsTest : public ::testing::Test {
 protected:
  S3SettingsTest() {
    for (const char* const name :
         {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION",
          "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CA_BUNDLE",
          "AWS_REQUEST_CHECKSUM_CALCULATION", "TESSERA_S3_CONNECTIONS",
          "TESSERA_S3_CHECKSUM", "TESSERA_S3_CONDITIONAL"}) {
      unsetenv(name);
    }
    Set("AWS_CONFIG_FILE", dir_.Join("config"));
    Set("AWS_SHARED_CREDENTIALS_FILE", dir_.Join("credentials"));
  }

  static void Set(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  }

  void Refuses(const char* name, const char* value, const char* expected) {
    Set(name, value);
    EXPECT_THAT(ReadS3Settings(),
                StatusIs(kInvalid, AllOf(HasSubstr(name), HasSubstr(value),
                                         HasSubstr(expected))));
    unsetenv(name);
  }

  const testing::KeptEnvironment environment_;
  const testing::TempDir dir_;
};

TEST_F(S3SettingsTest, DefaultsToAmazon) {
  const absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->endpoint, "");
  EXPECT_EQ(settings->region, "");
  EXPECT_EQ(settings->connections, 32);
  EXPECT_EQ(settings->checksum, S3Checksum::kCrc32c);
  EXPECT_TRUE(settings->conditional);
}

TEST_F(S3SettingsTest, ReadsVariables) {
  Set("AWS_ENDPOINT_URL", "http://all:80");
  Set("AWS_DEFAULT_REGION", "us-west-1");
  Set("AWS_CA_BUNDLE", "/certificates.pem");
  Set("TESSERA_S3_CONNECTIONS", "256");
  Set("TESSERA_S3_CHECKSUM", "md5");
  Set("TESSERA_S3_CONDITIONAL", "none");
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->endpoint, "http://all:80");
  EXPECT_EQ(settings->region, "us-west-1");
  EXPECT_EQ(settings->ca_bundle, "/certificates.pem");
  EXPECT_EQ(settings->connections, 256);
  EXPECT_EQ(settings->checksum, S3Checksum::kMd5);
  EXPECT_FALSE(settings->conditional);

  Set("AWS_ENDPOINT_URL_S3", "http://s3:80");
  Set("AWS_REGION", "us-west-2");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->endpoint, "http://s3:80");
  EXPECT_EQ(settings->region, "us-west-2");
}

TEST_F(S3SettingsTest, ReadsTheProfileIfVariablesAreUnset) {
  dir_.WriteFile("config",
                 "[default]\nregion = eu-west-1\n"
                 "[profile lab]\nregion = eu-west-2\n"
                 "endpoint_url = https://all.lab\nca_bundle = /lab.pem\n"
                 "s3 =\n  addressing_style = virtual\n"
                 "[profile near]\nservices = near-services\n"
                 "endpoint_url = https://all.near\n"
                 "[services near-services]\ns3 =\n"
                 "  endpoint_url = https://s3.near\n");
  dir_.WriteFile("credentials", "[other]\naws_access_key_id = x\n");
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->region, "eu-west-1");

  Set("AWS_PROFILE", "lab");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->profile, "lab");
  EXPECT_EQ(settings->region, "eu-west-2");
  EXPECT_EQ(settings->endpoint, "https://all.lab");
  EXPECT_EQ(settings->ca_bundle, "/lab.pem");
  EXPECT_EQ(settings->addressing, S3Addressing::kVirtual);

  Set("TESSERA_S3_ADDRESSING", "path");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->addressing, S3Addressing::kPath);

  Set("AWS_REGION", "eu-west-3");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->region, "eu-west-3");

  Set("AWS_PROFILE", "near");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->endpoint, "https://s3.near");

  Set("AWS_PROFILE", "other");
  EXPECT_OK(ReadS3Settings());
}

TEST_F(S3SettingsTest, LeavesOutChecksumsAsTheAwsToolsDo) {
  Set("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED");
  absl::StatusOr<S3Settings> settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->checksum, S3Checksum::kNone);
  Set("TESSERA_S3_CHECKSUM", "crc32c");
  settings = ReadS3Settings();
  ASSERT_OK(settings);
  EXPECT_EQ(settings->checksum, S3Checksum::kCrc32c);
}

TEST_F(S3SettingsTest, RefusesBadValuesByNameValueAndLimit) {
  Refuses("TESSERA_S3_CONNECTIONS", "0", "1 to 256");
  Refuses("TESSERA_S3_CONNECTIONS", "257", "1 to 256");
  Refuses("TESSERA_S3_CONNECTIONS", "many", "1 to 256");
  Refuses("TESSERA_S3_CHECKSUM", "crc32", "crc32c, md5 or none");
  Refuses("TESSERA_S3_CONDITIONAL", "always", "auto or none");
  Refuses("AWS_REQUEST_CHECKSUM_CALCULATION", "never", "when_supported");
  Refuses("AWS_REGION", "eu central", "the name of a region");
  Refuses("AWS_ENDPOINT_URL", "localhost:9000", "http://host[:port]");
  Refuses("AWS_ENDPOINT_URL_S3", "http://host/a?b", "http://host[:port]");
  Refuses("TESSERA_S3_ADDRESSING", "host", "auto, path or virtual");
  Refuses("AWS_PROFILE", "absent", "a profile of ~/.aws/config");
}

}  // namespace
}  // namespace dcp
