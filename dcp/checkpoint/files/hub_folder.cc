// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/hub_folder.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

constexpr absl::string_view kFolderPrefix = "models--";
constexpr absl::string_view kMainRef = "refs/main";
constexpr absl::string_view kSnapshots = "snapshots";
constexpr absl::string_view kScheme = "hf://";
constexpr uint64_t kMaxRefBytes = 256;

// "org/name" of "hf://org/name/file" and "org/name"; empty for other paths.
std::string HubName(absl::string_view path) {
  const bool has_scheme = absl::ConsumePrefix(&path, kScheme);
  const size_t slash = path.find('/');
  if (slash == absl::string_view::npos || slash == 0) return "";
  const size_t end = std::min(path.size(), path.find('/', slash + 1));
  if (end != path.size() && !has_scheme) return "";
  path = path.substr(0, end);
  if (path[0] == '.' || slash + 1 == path.size()) return "";
  for (const char c : path) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       c == '-' || c == '_' || c == '.' || c == '/';
    if (!plain) return "";
  }
  return std::string(path);
}

}  // namespace

absl::StatusOr<std::string> ResolveHubFolder(FileSystem& fs,
                                             absl::string_view path) {
  if (!absl::StartsWith(BaseName(path), kFolderPrefix)) {
    return std::string(path);
  }
  const std::string snapshots = JoinPath(path, kSnapshots);
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      fs.List(snapshots);
  if (!entries.ok()) return std::string(path);
  const absl::StatusOr<std::string> main = ReadFile(
      fs, JoinPath(path, kMainRef), kMaxRefBytes, /*follow_symlinks=*/false);
  const absl::string_view wanted =
      main.ok() ? absl::StripAsciiWhitespace(*main) : "";
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name == wanted) return JoinPath(snapshots, entry.name);
    names.push_back(entry.name);
  }
  if (names.size() == 1) return JoinPath(snapshots, names[0]);
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat(snapshots, ": no snapshot of the model was downloaded"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      snapshots, ": there are several snapshots and no ", kMainRef,
      " that names one: give the path of one of ", absl::StrJoin(names, ", ")));
}

absl::Status WithHubAdvice(const absl::Status& status, absl::string_view path) {
  const std::string name = HubName(path);
  if (name.empty()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   absl::StartsWith(path, kScheme)
                       ? "; the hub of Hugging Face is not read directly"
                       : "; if it is a model of Hugging Face",
                   ": `hf download ", name,
                   " --local-dir DIR` fetches it, then give DIR"));
}

}  // namespace dcp
