// SPDX-License-Identifier: Apache-2.0
// Makes and recognises the names of writers' files.
//
// Tested by tests/dcp/checkpoint/destination/renamed_destination_test.cc.
#include "dcp/checkpoint/destination/destination_names.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/io/file_system.h"

namespace dcp {
namespace {

constexpr absl::string_view kDataFileSuffix = ".distcp";
constexpr absl::string_view kWorkRecordsPrefix = ".work-";

// How much of an id goes into a name: enough to tell conversions at one place
// apart, and short enough that usual names do not become too long.
constexpr size_t kIdBytes = 13;

// The longest name that Linux's file systems allow, and the most that is added
// to a destination's name: ".", ".<id>" and ".partial", or ".work-<id>".
constexpr size_t kMaxFileNameBytes = 255;
constexpr size_t kMaxAddedBytes = 32;

}  // namespace

std::string ShortName(absl::string_view name) {
  if (name.size() <= kMaxFileNameBytes - kMaxAddedBytes) {
    return std::string(name);
  }
  const std::string digest =
      absl::StrCat("~", absl::Hex(Xxh3Digest(AsBytes(name)), absl::kZeroPad16));
  size_t kept = kMaxFileNameBytes - kMaxAddedBytes - digest.size();
  // Does not cut a UTF-8 character.
  while (kept > 0 && (static_cast<uint8_t>(name[kept]) & 0xc0) == 0x80) --kept;
  return absl::StrCat(name.substr(0, kept), digest);
}

bool IsDataFileName(absl::string_view name) {
  uint64_t number;
  if (!absl::ConsumePrefix(&name, "__") ||
      !absl::ConsumeSuffix(&name, kDataFileSuffix)) {
    return false;
  }
  name = name.substr(0, name.find('.'));
  const size_t middle = name.find('_');
  return middle != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(0, middle), &number) &&
         absl::SimpleAtoi(name.substr(middle + 1), &number);
}

std::string DataFileName(int64_t rank, uint64_t i, absl::string_view id) {
  return absl::StrCat("__", rank, "_", i, id.empty() ? "" : ".", id,
                      kDataFileSuffix);
}

bool IsRankIndexName(absl::string_view name) {
  uint64_t rank;
  return absl::ConsumePrefix(&name, "__") &&
         absl::ConsumeSuffix(&name, ".metadata") &&
         absl::SimpleAtoi(name, &rank);
}

std::string TemporaryIndexName(absl::string_view id) {
  return absl::StrCat(kDcpMetadataName, ".", id.substr(0, kIdBytes), ".tmp");
}

bool IsTemporaryIndexName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kDcpMetadataName) &&
         absl::StartsWith(name, ".") && absl::EndsWith(name, ".tmp");
}

bool BelongsToSafetensors(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") ||
         absl::EndsWith(name, ".safetensors.index.json") || IsDigestsName(name);
}

std::string SiblingPath(absl::string_view path, absl::string_view id,
                        absl::string_view suffix) {
  return JoinPath(ParentDirectory(path),
                  absl::StrCat(".", ShortName(BaseName(path)), ".",
                               id.substr(0, kIdBytes), ".", suffix));
}

bool IsSiblingName(absl::string_view name, absl::string_view base,
                   absl::string_view suffix) {
  return absl::ConsumePrefix(&name, ".") &&
         absl::ConsumePrefix(&name, ShortName(base)) &&
         absl::ConsumePrefix(&name, ".") &&
         absl::ConsumeSuffix(&name, suffix) &&
         absl::ConsumeSuffix(&name, ".") && name.size() == kIdBytes &&
         name.find('.') == absl::string_view::npos;
}

bool IsLeftSiblingName(absl::string_view name, absl::string_view base) {
  return IsSiblingName(name, base, "tmp") ||
         name == absl::StrCat(".", ShortName(base), ".partial");
}

std::string WorkRecordsName(absl::string_view id) {
  return absl::StrCat(kWorkRecordsPrefix, id);
}

bool IsWorkRecordsName(absl::string_view name) {
  return absl::StartsWith(name, kWorkRecordsPrefix);
}

std::string WithoutTrailingSlashes(absl::string_view path) {
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.remove_suffix(1);
  return std::string(path);
}

}  // namespace dcp
