// SPDX-License-Identifier: Apache-2.0
// S3Settings: how to reach the object store, as the AWS tools read it from the
// environment and from the profile in ~/.aws/config, and what only this program
// knows, from variables TESSERA_S3_. Credentials are not among it: see
// s3_credentials.h. Any thread, as long as none changes the environment.
#ifndef DCP_IO_S3_S3_SETTINGS_H_
#define DCP_IO_S3_S3_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

// What protects the bytes of a put on the way, in a header of the request.
enum class S3Checksum : uint8_t { kNone, kCrc32c, kMd5 };

// Where a request names its bucket.
enum class S3Addressing : uint8_t {
  kAuto,     // in the host with Amazon, in the path elsewhere
  kPath,     // after the host
  kVirtual,  // in front of the host
};

struct S3Settings {
  // "scheme://host[:port][/path]" of a server that is not Amazon's; empty for
  // Amazon's own.
  std::string endpoint;
  S3Addressing addressing = S3Addressing::kAuto;
  // Empty: "us-east-1", and with Amazon whatever the bucket says.
  std::string region;
  // A profile of ~/.aws/config; empty for "default".
  std::string profile;
  // A file of certificates in PEM; empty for the system's.
  std::string ca_bundle;

  // Connections at once. One gives some 50 to 90 MB/s.
  uint32_t connections = 32;
  S3Checksum checksum = S3Checksum::kCrc32c;
  // Whether puts carry conditions. Not every server knows If-None-Match.
  bool conditional = true;

  // A request is tried again this often after an answer that promises success
  // later. Waits double from the first to the longest, each shortened by
  // chance: a minute in all.
  uint32_t num_retries = 11;
  uint32_t first_wait_ms = 500;
  uint32_t longest_wait_s = 20;
  // A connection on which nothing moves for so long is given up.
  uint32_t stalled_s = 30;
  // After this time a try that fails is the last one.
  uint32_t give_up_s = 120;
};

inline constexpr uint32_t kMaxS3Connections = 256;

// Reads AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION,
// AWS_PROFILE, AWS_CA_BUNDLE, AWS_REQUEST_CHECKSUM_CALCULATION,
// TESSERA_S3_CONNECTIONS, TESSERA_S3_CHECKSUM, TESSERA_S3_CONDITIONAL,
// TESSERA_S3_ADDRESSING, and from the profile endpoint_url (also of its
// services), region, ca_bundle and addressing_style of s3.
// Variables come before the profile. InvalidArgument names what is wrong.
absl::StatusOr<S3Settings> ReadS3Settings();

// Checks the endpoint of S3Settings: InvalidArgument unless it is a URL of http
// or https without a query; `name` is the variable that it is from.
absl::Status CheckS3Endpoint(absl::string_view name,
                             absl::string_view endpoint);

}  // namespace dcp

#endif  // DCP_IO_S3_S3_SETTINGS_H_
