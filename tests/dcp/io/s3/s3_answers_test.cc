// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOkAndHolds;
using ::testing::SizeIs;
using testing::StatusIs;

using ::dcp::testing::kDataLoss;
constexpr char kHead[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

// The example in Amazon's documentation, shortened.
TEST(S3Answers, ReadsAListOfObjects) {
  const absl::StatusOr<ObjectPage> page = ParseS3Objects(
      absl::StrCat(
          kHead,
          "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
          "<Name>bucket</Name><Prefix>run%2F</Prefix><KeyCount>2</KeyCount>"
          "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
          "<NextContinuationToken>1ueG&amp;cXr==</NextContinuationToken>"
          "<Contents><Key>run%2Fa+b</Key>"
          "<LastModified>2026-10-12T17:50:30.123Z</LastModified>"
          "<ETag>&quot;fba9-7&quot;</ETag><Size>434234</Size>"
          "<StorageClass>STANDARD</StorageClass></Contents>"
          "<CommonPrefixes><Prefix>run%2Fstep%2F</Prefix></CommonPrefixes>"
          "</ListBucketResult>"),
      "run/");
  ASSERT_OK(page);
  ASSERT_THAT(page->objects, SizeIs(1));
  EXPECT_EQ(page->objects[0].key, "run/a b");
  EXPECT_EQ(page->objects[0].size, 434234);
  EXPECT_EQ(page->objects[0].etag, "\"fba9-7\"");
  EXPECT_EQ(page->objects[0].modified_ns, int64_t{1791827430} * 1'000'000'000);
  EXPECT_THAT(page->folders, ElementsAre("run/step/"));
  EXPECT_EQ(page->next, "1ueG&cXr==");
}

TEST(S3Answers, KeysAreDecodedOnlyWhereTheServerEncodedThem) {
  const absl::StatusOr<ObjectPage> page = ParseS3Objects(
      "<ListBucketResult><Contents><Key>100%25+1</Key></Contents>"
      "</ListBucketResult>",
      "");
  ASSERT_OK(page);
  EXPECT_EQ(page->objects[0].key, "100%25+1");
  EXPECT_EQ(page->next, "");
}

TEST(S3Answers, ReadsUploadsAndTheNextMarker) {
  const absl::StatusOr<UploadPage> page = ParseS3Uploads(
      "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>a/&amp;b</NextKeyMarker>"
      "<NextUploadIdMarker>2~x=</NextUploadIdMarker>"
      "<Upload><Key>a/&amp;b</Key><UploadId>2~x=</UploadId>"
      "<Initiated>2026-10-12T17:50:30Z</Initiated></Upload>"
      "</ListMultipartUploadsResult>");
  ASSERT_OK(page);
  ASSERT_THAT(page->uploads, SizeIs(1));
  EXPECT_EQ(page->uploads[0].key, "a/&b");
  EXPECT_EQ(page->uploads[0].id, "2~x=");
  EXPECT_EQ(page->uploads[0].begun_ns, int64_t{1791827430} * 1'000'000'000);
  EXPECT_EQ(page->next, "key-marker=a%2F%26b&upload-id-marker=2~x%3D");
}

TEST(S3Answers, ReadsPartsWithTheirChecksums) {
  const absl::StatusOr<S3PartsPage> page = ParseS3Parts(
      "<ListPartsResult><IsTruncated>true</IsTruncated>"
      "<NextPartNumberMarker>7</NextPartNumberMarker>"
      "<Part><PartNumber>3</PartNumber><Size>5</Size><ETag>e3</ETag>"
      "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>"
      "<Part><PartNumber>7</PartNumber><Size>6</Size><ETag>e7</ETag></Part>"
      "</ListPartsResult>");
  ASSERT_OK(page);
  ASSERT_THAT(page->parts, SizeIs(2));
  EXPECT_EQ(page->next, "7");
  EXPECT_EQ(page->parts[0].number, 3);
  EXPECT_EQ(page->parts[0].crc32c, "AAAAAA==");
  EXPECT_EQ(page->parts[1].size, 6);
  EXPECT_EQ(page->parts[1].crc32c, "");
}

TEST(S3Answers, ReadsPartsUnderAnotherListName) {
  const absl::StatusOr<S3PartsPage> page = ParseS3Parts(
      "<ListPartsResponse><Part><PartNumber>1</PartNumber><Size>5</Size>"
      "<ETag>e1</ETag></Part></ListPartsResponse>");
  ASSERT_OK(page);
  EXPECT_THAT(page->parts, SizeIs(1));
}

TEST(S3Answers, ReadsUploadIdsRemovalsAndErrors) {
  EXPECT_THAT(ParseS3UploadId("<InitiateMultipartUploadResult><UploadId>a</"
                              "UploadId></InitiateMultipartUploadResult>"),
              IsOkAndHolds("a"));
  EXPECT_THAT(ParseS3Removed("<DeleteResult></DeleteResult>"),
              IsOkAndHolds(IsEmpty()));
  const absl::StatusOr<std::vector<S3ErrorText>> errors = ParseS3Removed(
      "<DeleteResult><Deleted><Key>b</Key></Deleted><Error><Key>a</Key>"
      "<Code>AccessDenied</Code><Message>No.</Message></Error></DeleteResult>");
  ASSERT_OK(errors);
  ASSERT_THAT(*errors, SizeIs(1));
  EXPECT_EQ((*errors)[0].key, "a");
  EXPECT_EQ((*errors)[0].code, "AccessDenied");
  const std::optional<S3ErrorText> error = ParseS3Error(
      absl::StrCat(kHead,
                   "<Error><Code>AuthorizationHeaderMalformed</Code>"
                   "<Message>The region is wrong</Message>"
                   "<Region>eu-west-1</Region></Error>"));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->region, "eu-west-1");
  EXPECT_FALSE(ParseS3Error("").has_value());
  EXPECT_FALSE(ParseS3Error("<html>Bad gateway</html>").has_value());
  EXPECT_FALSE(ParseS3Error("<Error></Error>").has_value());
}

TEST(S3Answers, RefusesOtherForms) {
  for (const std::string& xml : {
           std::string(),
           std::string("text"),
           std::string("<html></html>"),
           std::string("<ListBucketResult>"),
           std::string("<ListBucketResult><Contents><Key>a</Contents>"),
           std::string("<ListBucketResult><Contents><Size>-1</Size></Contents>"
                       "</ListBucketResult>"),
           std::string("<ListBucketResult><Contents><LastModified>now"
                       "</LastModified></Contents></ListBucketResult>"),
           std::string("<ListBucketResult><IsTruncated>true</IsTruncated>"
                       "</ListBucketResult>"),
       }) {
    EXPECT_THAT(ParseS3Objects(xml, ""), StatusIs(kDataLoss)) << xml;
  }
  EXPECT_THAT(ParseS3Uploads("<ListMultipartUploadsResult><IsTruncated>true</"
                             "IsTruncated></ListMultipartUploadsResult>"),
              StatusIs(kDataLoss));
  for (const char* const number : {"0", "10001", "-1", "x"}) {
    EXPECT_THAT(
        ParseS3Parts(absl::StrCat("<ListPartsResult><Part><PartNumber>", number,
                                  "</PartNumber></Part></ListPartsResult>")),
        StatusIs(kDataLoss))
        << number;
  }
  EXPECT_THAT(ParseS3UploadId("<InitiateMultipartUploadResult>"
                              "</InitiateMultipartUploadResult>"),
              StatusIs(kDataLoss, HasSubstr("without an id")));
}

TEST(S3Answers, ReadsTheTimeOfAHeader) {
  EXPECT_THAT(ParseHttpTime("Mon, 12 Oct 2026 17:50:30 GMT"),
              IsOkAndHolds(int64_t{1791827430} * 1'000'000'000));
  EXPECT_THAT(ParseHttpTime(""), StatusIs(kDataLoss));
  EXPECT_THAT(ParseHttpTime("yesterday"), StatusIs(kDataLoss));
}

}  // namespace
}  // namespace dcp
