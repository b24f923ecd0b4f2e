// SPDX-License-Identifier: Apache-2.0
// S3Settings: how to reach the object store. The AWS settings come from the
// environment and the profile in ~/.aws/config, as the AWS tools read them;
// this program's own settings come from variables TESSERA_S3_. Credentials are
// separate: see s3_credentials.h. Any thread, as long as no thread changes the
// environment.
#ifndef DCP_IO_S3_S3_SETTINGS_H_
#define DCP_IO_S3_S3_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

// The checksum that protects a put's bytes on the way, sent in a header.
enum class S3Checksum : uint8_t { kNone, kCrc32c, kMd5 };

// The place where a request names the bucket.
enum class S3Addressing : uint8_t {
  kAuto,     // in the host with Amazon, in the path elsewhere
  kPath,     // after the host
  kVirtual,  // in front of the host
};

struct S3Settings {
  // "scheme://host[:port][/path]" for another server; empty for Amazon's own.
  std::string endpoint;
  S3Addressing addressing = S3Addressing::kAuto;
  // Empty: "us-east-1", and with Amazon the region that the bucket reports.
  std::string region;
  // A profile in ~/.aws/config; empty for "default".
  std::string profile;
  // A file with PEM certificates; empty for the system's.
  std::string ca_bundle;

  // Connections at once. One gives some 50 to 90 MB/s.
  uint32_t connections = 32;
  S3Checksum checksum = S3Checksum::kCrc32c;
  // Whether puts carry conditions. Not every server knows If-None-Match.
  bool conditional = true;

  // A request is retried this often after an answer that promises success
  // later. Waits double from the first to the longest, each shortened by
  // chance: a minute in all.
  uint32_t num_retries = 11;
  uint32_t first_wait_ms = 500;
  uint32_t longest_wait_s = 20;
  // A connection without any progress for this long is given up.
  uint32_t stalled_s = 30;
  // After this time a try that fails is the last one.
  uint32_t give_up_s = 120;
};

inline constexpr uint32_t kMaxS3Connections = 256;

// Reads AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION,
// AWS_PROFILE, AWS_CA_BUNDLE, AWS_REQUEST_CHECKSUM_CALCULATION,
// TESSERA_S3_CONNECTIONS, TESSERA_S3_CHECKSUM, TESSERA_S3_CONDITIONAL,
// TESSERA_S3_ADDRESSING, and from the profile endpoint_url (also in the
// services section), region, ca_bundle and the s3 addressing_style. Variables
// come before the profile. InvalidArgument names the wrong setting.
absl::StatusOr<S3Settings> ReadS3Settings();

// Checks S3Settings's endpoint: InvalidArgument unless it is an http or https
// URL without a query; `name` is the variable that it comes from.
absl::Status CheckS3Endpoint(absl::string_view name,
                             absl::string_view endpoint);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_SETTINGS_H_
