// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/s3/s3_settings.h"

#include <aws/common/error.h>
#include <aws/common/string.h>
#include <aws/sdkutils/aws_profile.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"
#include "dcp/io/s3/aws_runtime.h"

namespace dcp {
namespace {

// Empty if it is not set: the AWS tools treat both alike.
std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Refuse(absl::string_view name, absl::string_view value,
                    absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", value, "\"; it must be ", expected));
}

// The profile that the AWS tools would use, from both files.
class Profile {
 public:
  explicit Profile(const std::string& name) : name_(name) {
    aws_allocator* const allocator = AwsRuntime::Get().allocator;
    aws_string* const config_path =
        aws_get_config_file_path(allocator, nullptr);
    aws_string* const credentials_path =
        aws_get_credentials_file_path(allocator, nullptr);
    aws_profile_collection* config = Read(config_path, AWS_PST_CONFIG);
    aws_profile_collection* credentials =
        Read(credentials_path, AWS_PST_CREDENTIALS);
    profiles_ =
        aws_profile_collection_new_from_merge(allocator, config, credentials);
    aws_profile_collection_release(config);
    aws_profile_collection_release(credentials);
    aws_string_destroy(config_path);
    aws_string_destroy(credentials_path);
  }
  ~Profile() { aws_profile_collection_release(profiles_); }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool Exists() const {
    return Section(AWS_PROFILE_SECTION_TYPE_PROFILE, Name()) != nullptr;
  }

  std::string Property(absl::string_view property) const {
    return Value(Find(AWS_PROFILE_SECTION_TYPE_PROFILE, Name(), property));
  }

  // The profile names a services section, which has an endpoint for each
  // service.
  std::string ProfileEndpoint() const {
    const std::string services = Property("services");
    if (services.empty()) return "";
    return SubProperty(Find(AWS_PROFILE_SECTION_TYPE_SERVICES, services, "s3"),
                       "endpoint_url");
  }

  std::string ProfileAddressing() const {
    return SubProperty(Find(AWS_PROFILE_SECTION_TYPE_PROFILE, Name(), "s3"),
                       "addressing_style");
  }

 private:
  static aws_string* NewString(absl::string_view text) {
    const aws_byte_cursor cursor = ToCursor(text);
    return aws_string_new_from_cursor(AwsRuntime::Get().allocator, &cursor);
  }

  static aws_profile_collection* Read(const aws_string* path,
                                      aws_profile_source_type type) {
    if (path == nullptr) return nullptr;
    return aws_profile_collection_new_from_file(AwsRuntime::Get().allocator,
                                                path, type);
  }

  static std::string SubProperty(const aws_profile_property* property,
                                 absl::string_view name) {
    if (property == nullptr) return "";
    aws_string* const text = NewString(name);
    const aws_string* const value =
        aws_profile_property_get_sub_property(property, text);
    aws_string_destroy(text);
    return value == nullptr ? "" : aws_string_c_str(value);
  }

  std::string Name() const { return name_.empty() ? "default" : name_; }

  const aws_profile* Section(aws_profile_section_type type,
                             absl::string_view name) const {
    if (profiles_ == nullptr) return nullptr;
    aws_string* const text = NewString(name);
    const aws_profile* const section =
        aws_profile_collection_get_section(profiles_, type, text);
    aws_string_destroy(text);
    return section;
  }

  const aws_profile_property* Find(aws_profile_section_type type,
                                   absl::string_view section,
                                   absl::string_view property) const {
    const aws_profile* const found = Section(type, section);
    if (found == nullptr) return nullptr;
    aws_string* const text = NewString(property);
    const aws_profile_property* const value =
        aws_profile_get_property(found, text);
    aws_string_destroy(text);
    return value;
  }

  static std::string Value(const aws_profile_property* property) {
    if (property == nullptr) return "";
    return aws_string_c_str(aws_profile_property_get_value(property));
  }

  const std::string name_;
  aws_profile_collection* profiles_ = nullptr;
};

absl::Status ReadEndpoint(const Profile& profile, S3Settings& settings) {
  std::string source;
  for (const char* const name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    if (settings.endpoint.empty()) {
      settings.endpoint = Environment(name);
      source = name;
    }
  }
  if (settings.endpoint.empty()) {
    settings.endpoint = profile.ProfileEndpoint();
    if (settings.endpoint.empty()) {
      settings.endpoint = profile.Property("endpoint_url");
    }
    source = "endpoint_url of the profile";
  }
  if (settings.endpoint.empty()) return absl::OkStatus();
  return CheckS3Endpoint(source, settings.endpoint);
}

absl::Status ReadRegion(const Profile& profile, S3Settings& settings) {
  std::string source;
  for (const char* const name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    if (settings.region.empty()) {
      settings.region = Environment(name);
      source = name;
    }
  }
  if (settings.region.empty()) {
    settings.region = profile.Property("region");
    source = "region of the profile";
  }
  // The region becomes a part of the host's name.
  for (const char c : settings.region) {
    if (!absl::ascii_isalnum(static_cast<uint8_t>(c)) && c != '-') {
      return Refuse(source, settings.region,
                    "the name of a region, such as eu-central-1");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadAddressing(const Profile& profile, S3Settings& settings) {
  constexpr char kName[] = "TESSERA_S3_ADDRESSING";
  std::string text = Environment(kName);
  const char* source = kName;
  if (text.empty()) {
    text = profile.ProfileAddressing();
    source = "addressing_style of the profile";
  }
  if (text == "path") {
    settings.addressing = S3Addressing::kPath;
  } else if (text == "virtual") {
    settings.addressing = S3Addressing::kVirtual;
  } else if (!text.empty() && text != "auto") {
    return Refuse(source, text, "auto, path or virtual");
  }
  return absl::OkStatus();
}

absl::Status ReadConnections(S3Settings& settings) {
  constexpr char kName[] = "TESSERA_S3_CONNECTIONS";
  const std::string text = Environment(kName);
  if (text.empty()) return absl::OkStatus();
  if (absl::SimpleAtoi(text, &settings.connections) &&
      settings.connections >= 1 && settings.connections <= kMaxS3Connections) {
    return absl::OkStatus();
  }
  return Refuse(kName, text, absl::StrCat("1 to ", kMaxS3Connections));
}

absl::Status ReadChecksum(S3Settings& settings) {
  constexpr char kAwsName[] = "AWS_REQUEST_CHECKSUM_CALCULATION";
  const std::string when = absl::AsciiStrToLower(Environment(kAwsName));
  if (when == "when_required") {
    settings.checksum = S3Checksum::kNone;
  } else if (!when.empty() && when != "when_supported") {
    return Refuse(kAwsName, when, "when_supported or when_required");
  }
  constexpr char kName[] = "TESSERA_S3_CHECKSUM";
  const std::string text = Environment(kName);
  if (text == "crc32c") {
    settings.checksum = S3Checksum::kCrc32c;
  } else if (text == "md5") {
    settings.checksum = S3Checksum::kMd5;
  } else if (text == "none") {
    settings.checksum = S3Checksum::kNone;
  } else if (!text.empty()) {
    return Refuse(kName, text, "crc32c, md5 or none");
  }
  return absl::OkStatus();
}

absl::Status ReadConditional(S3Settings& settings) {
  constexpr char kName[] = "TESSERA_S3_CONDITIONAL";
  const std::string text = Environment(kName);
  if (text == "none") {
    settings.conditional = false;
  } else if (!text.empty() && text != "auto") {
    return Refuse(kName, text, "auto or none");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckS3Endpoint(absl::string_view name,
                             absl::string_view endpoint) {
  absl::string_view rest = endpoint;
  const bool has_scheme = absl::ConsumePrefix(&rest, "http://") ||
                          absl::ConsumePrefix(&rest, "https://");
  bool is_valid = has_scheme && !rest.empty() && rest[0] != '/';
  absl::string_view allowed = "-._:[]/";
  for (const char c : rest) {
    if (c == '/') allowed = "-._~%/";
    is_valid =
        is_valid && (absl::ascii_isalnum(static_cast<uint8_t>(c)) ||
                     absl::StrContains(allowed, absl::string_view(&c, 1)));
  }
  if (is_valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", endpoint,
                   "\"; it must be http://host[:port][/path] or "
                   "https://host[:port][/path]"));
}

absl::StatusOr<S3Settings> ReadS3Settings() {
  S3Settings settings;
  settings.profile = Environment("AWS_PROFILE");
  const Profile profile(settings.profile);
  if (!settings.profile.empty() && !profile.Exists()) {
    return Refuse("AWS_PROFILE", settings.profile,
                  "a profile of ~/.aws/config or ~/.aws/credentials, or of the "
                  "files in AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE");
  }
  DCP_RETURN_IF_ERROR(ReadEndpoint(profile, settings));
  DCP_RETURN_IF_ERROR(ReadRegion(profile, settings));
  settings.ca_bundle = Environment("AWS_CA_BUNDLE");
  if (settings.ca_bundle.empty()) {
    settings.ca_bundle = profile.Property("ca_bundle");
  }
  DCP_RETURN_IF_ERROR(ReadAddressing(profile, settings));
  DCP_RETURN_IF_ERROR(ReadConnections(settings));
  DCP_RETURN_IF_ERROR(ReadChecksum(settings));
  DCP_RETURN_IF_ERROR(ReadConditional(settings));
  return settings;
}

}  // namespace dcp
