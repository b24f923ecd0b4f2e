// SPDX-License-Identifier: Apache-2.0
// Lists the objects and uploads below a folder, page by page.
// Tested by tests/dcp/io/object/object_file_system_test.cc.
#include "dcp/io/object/object_lists.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

absl::Status CheckNumber(const ObjectStore& store, absl::string_view key,
                         uint64_t num) {
  if (num <= kMaxFiles) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(store.url(), "/", key, ": more than ", kMaxFiles,
                   " objects; name a folder further down"));
}

absl::Status ForEachPage(ObjectStore& store, absl::string_view key,
                         bool by_folder,
                         absl::FunctionRef<void(const ObjectPage&)> visit) {
  uint64_t num_seen = 0;
  std::string after;
  do {
    DCP_ASSIGN_OR_RETURN(ObjectPage page,
                         store.List(FolderPrefix(key), by_folder, after));
    num_seen += page.objects.size() + page.folders.size();
    DCP_RETURN_IF_ERROR(CheckNumber(store, key, num_seen));
    visit(page);
    after = std::move(page.next);
  } while (!after.empty());
  return absl::OkStatus();
}

}  // namespace

std::string FolderPrefix(absl::string_view key) {
  return key.empty() ? "" : absl::StrCat(key, "/");
}

absl::StatusOr<std::vector<DirectoryEntry>> ListFolder(ObjectStore& store,
                                                       absl::string_view key) {
  const size_t skipped = FolderPrefix(key).size();
  std::vector<DirectoryEntry> entries;
  const auto add = [&](absl::string_view name, FileKind kind) {
    name.remove_prefix(skipped);
    absl::ConsumeSuffix(&name, "/");
    // Other programs mark a folder by an object with the folder's name.
    if (!name.empty()) {
      entries.push_back({.name = std::string(name), .kind = kind});
    }
  };
  DCP_RETURN_IF_ERROR(
      ForEachPage(store, key, /*by_folder=*/true, [&](const ObjectPage& page) {
        for (const ObjectInfo& object : page.objects) {
          add(object.key, FileKind::kFile);
        }
        for (const std::string& folder : page.folders) {
          add(folder, FileKind::kDirectory);
        }
      }));
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) {
              return a.name < b.name;
            });
  return entries;
}

absl::StatusOr<std::vector<StoredFile>> ListFilesBelow(ObjectStore& store,
                                                       absl::string_view key) {
  std::vector<StoredFile> files;
  DCP_RETURN_IF_ERROR(
      ForEachPage(store, key, /*by_folder=*/false, [&](const ObjectPage& page) {
        for (const ObjectInfo& object : page.objects) {
          if (absl::EndsWith(object.key, "/")) continue;  // it marks a folder
          files.push_back({.path = absl::StrCat(store.url(), "/", object.key),
                           .size = object.size,
                           .modified_ns = object.modified_ns});
        }
      }));
  std::sort(
      files.begin(), files.end(),
      [](const StoredFile& a, const StoredFile& b) { return a.path < b.path; });
  return files;
}

absl::StatusOr<std::vector<HiddenFile>> ListUploadsBelow(
    ObjectStore& store, absl::string_view key) {
  std::vector<HiddenFile> hidden;
  std::string after;
  do {
    DCP_ASSIGN_OR_RETURN(UploadPage page,
                         store.Uploads(FolderPrefix(key), after));
    for (ObjectUpload& upload : page.uploads) {
      hidden.push_back({.path = absl::StrCat(store.url(), "/", upload.key),
                        .id = std::move(upload.id),
                        .begun_ns = upload.begun_ns});
    }
    DCP_RETURN_IF_ERROR(CheckNumber(store, key, hidden.size()));
    after = std::move(page.next);
  } while (!after.empty());
  std::sort(hidden.begin(), hidden.end(),
            [](const HiddenFile& a, const HiddenFile& b) {
              return std::tie(a.path, a.id) < std::tie(b.path, b.id);
            });
  return hidden;
}

}  // namespace dcp
