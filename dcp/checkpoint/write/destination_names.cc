// Tested by tests/dcp/checkpoint/write/renamed_destination_test.cc.
#include "dcp/checkpoint/write/destination_names.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/open/dcp_opener.h"
#include "dcp/checkpoint/open/digests.h"
#include "dcp/io/file_system.h"

namespace dcp {
namespace {

constexpr absl::string_view kWorkRecordsPrefix = ".work-";

// How much of an id goes into a name: enough to tell conversions at one place
// apart, but not so much that names of usual length become too long.
constexpr size_t kIdBytes = 13;

}  // namespace

bool IsDataFileName(absl::string_view name) {
  uint64_t number;
  if (!absl::ConsumePrefix(&name, "__") ||
      !absl::ConsumeSuffix(&name, ".distcp")) {
    return false;
  }
  name = name.substr(0, name.find('.'));
  const size_t middle = name.find('_');
  return middle != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(0, middle), &number) &&
         absl::SimpleAtoi(name.substr(middle + 1), &number);
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
                  absl::StrCat(".", BaseName(path), ".", id.substr(0, kIdBytes),
                               ".", suffix));
}

bool IsSiblingName(absl::string_view name, absl::string_view base,
                   absl::string_view suffix) {
  return absl::ConsumePrefix(&name, ".") && absl::ConsumePrefix(&name, base) &&
         absl::ConsumePrefix(&name, ".") &&
         absl::ConsumeSuffix(&name, suffix) &&
         absl::ConsumeSuffix(&name, ".") && name.size() == kIdBytes &&
         name.find('.') == absl::string_view::npos;
}

bool IsLeftSiblingName(absl::string_view name, absl::string_view base) {
  return IsSiblingName(name, base, "tmp") ||
         name == absl::StrCat(".", base, ".partial");
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
