// SPDX-License-Identifier: Apache-2.0

#include "server/access/rooted_file_system.h"

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/status.h"
#include "server/access/pinned_path.h"

namespace dcp::server {
namespace {

// A pinned path, and the path by which the client knows it.
struct HeldPath {
  absl::string_view asked;
  PinnedPath pinned;
};

absl::StatusOr<HeldPath> Hold(absl::string_view path, const Location& location,
                              absl::StatusOr<PinnedPath> pinned) {
  if (pinned.ok()) return HeldPath{path, *std::move(pinned)};
  return absl::Status(pinned.status().code(),
                      location.WithClientPaths(pinned.status().message()));
}

absl::StatusOr<HeldPath> HoldEntry(const Client& client, absl::string_view path,
                                   PathUse use) {
  DCP_ASSIGN_OR_RETURN(const Location location, client.Locate(path, use));
  return Hold(path, location, PinnedPath::OpenEntry(location));
}

absl::StatusOr<HeldPath> HoldDirectory(const Client& client,
                                       absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Location location,
                       client.Locate(path, PathUse::kRead));
  return Hold(path, location, PinnedPath::OpenDirectory(location));
}

// Replaces the pinned path in errors with the path that the client asked for.
absl::Status WithClientPaths(const absl::Status& status, const HeldPath& held) {
  if (status.ok()) return status;
  absl::Status told(status.code(),
                    absl::StrReplaceAll(status.message(),
                                        {{held.pinned.name(), held.asked}}));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    told.SetPayload(type, payload);
  });
  return told;
}

template <typename T>
absl::StatusOr<T> WithClientPaths(absl::StatusOr<T> result,
                                  const HeldPath& held) {
  if (!result.ok()) return WithClientPaths(result.status(), held);
  return result;
}

using TwoPaths = absl::FunctionRef<absl::Status(absl::string_view from,
                                                absl::string_view to)>;

absl::Status WithBothHeld(const Client& client, absl::string_view from,
                          absl::string_view to, TwoPaths act) {
  DCP_ASSIGN_OR_RETURN(const HeldPath src,
                       HoldEntry(client, from, PathUse::kWriteEntry));
  DCP_ASSIGN_OR_RETURN(const HeldPath dst,
                       HoldEntry(client, to, PathUse::kWriteEntry));
  return WithClientPaths(
      WithClientPaths(act(src.pinned.name(), dst.pinned.name()), src), dst);
}

}  // namespace

RootedFileSystem::RootedFileSystem(FileSystem& fs, Client client)
    : fs_(fs), client_(std::move(client)) {}

RootedFileSystem::RootedFileSystem(FileSystem& fs, const Access& access,
                                   const Client& client)
    : fs_(fs),
      client_(client.Unrevoked()),
      access_(&access),
      nobody_(client.name(), {}) {}

const Client& RootedFileSystem::client() const {
  if (access_ == nullptr) return client_;
  const Client* const now = access_->FindClient(client_.name());
  return now == nullptr ? nobody_ : *now;
}

absl::StatusOr<File> RootedFileSystem::OpenForRead(absl::string_view path,
                                                   DirectMode direct,
                                                   bool follow_symlinks) {
  DCP_ASSIGN_OR_RETURN(
      const HeldPath held,
      HoldEntry(client(), path,
                follow_symlinks ? PathUse::kRead : PathUse::kReadEntry));
  // Links have been followed already, so a link here would be new.
  return WithClientPaths(
      fs_.OpenForRead(held.pinned.name(), direct, /*follow_symlinks=*/false),
      held);
}

absl::StatusOr<File> RootedFileSystem::Create(absl::string_view path,
                                              uint64_t size,
                                              DirectMode direct) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Create(held.pinned.name(), size, direct), held);
}

absl::StatusOr<File> RootedFileSystem::OpenShared(absl::string_view path,
                                                  uint64_t size,
                                                  DirectMode direct) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.OpenShared(held.pinned.name(), size, direct),
                         held);
}

absl::Status RootedFileSystem::SyncDirectory(absl::string_view path) {
  // Only read access is needed: the directory may be a root, which itself
  // cannot be written.
  DCP_ASSIGN_OR_RETURN(const HeldPath held, HoldDirectory(client_, path));
  return WithClientPaths(fs_.SyncDirectory(held.pinned.name()), held);
}

absl::Status RootedFileSystem::Rename(absl::string_view from,
                                      absl::string_view to) {
  return WithBothHeld(client(), from, to,
                      [this](absl::string_view src, absl::string_view dst) {
                        return fs_.Rename(src, dst);
                      });
}

absl::Status RootedFileSystem::RenameExclusive(absl::string_view from,
                                               absl::string_view to) {
  return WithBothHeld(client(), from, to,
                      [this](absl::string_view src, absl::string_view dst) {
                        return fs_.RenameExclusive(src, dst);
                      });
}

absl::Status RootedFileSystem::Exchange(absl::string_view a,
                                        absl::string_view b) {
  return WithBothHeld(client(), a, b,
                      [this](absl::string_view one, absl::string_view other) {
                        return fs_.Exchange(one, other);
                      });
}

absl::Status RootedFileSystem::Remove(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Remove(held.pinned.name()), held);
}

absl::Status RootedFileSystem::MakeDirectory(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.MakeDirectory(held.pinned.name()), held);
}

absl::Status RootedFileSystem::RemoveDirectory(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.RemoveDirectory(held.pinned.name()), held);
}

absl::StatusOr<File> RootedFileSystem::CreateInParts(absl::string_view path,
                                                     const InParts& parts) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.CreateInParts(held.pinned.name(), parts), held);
}

absl::Status RootedFileSystem::Publish(absl::string_view path, bool replaces) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Publish(held.pinned.name(), replaces), held);
}

absl::Status RootedFileSystem::Discard(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Discard(held.pinned.name()), held);
}

absl::StatusOr<HiddenFile> RootedFileSystem::Release(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Release(held.pinned.name()), held);
}

absl::Status RootedFileSystem::Adopt(const HiddenFile& hidden, uint64_t size) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), hidden.path, PathUse::kWriteEntry));
  HiddenFile pinned = hidden;
  pinned.path = held.pinned.name();
  return WithClientPaths(fs_.Adopt(pinned, size), held);
}

absl::Status RootedFileSystem::Replace(absl::string_view path,
                                       absl::string_view bytes,
                                       const std::optional<FileInfo>& seen) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Replace(held.pinned.name(), bytes, seen), held);
}

absl::StatusOr<std::vector<HiddenFile>> RootedFileSystem::ListHidden(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held, HoldDirectory(client_, path));
  return WithClientPaths(fs_.ListHidden(held.pinned.name()), held);
}

absl::Status RootedFileSystem::RemoveHidden(const HiddenFile& hidden) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, hidden.path, PathUse::kWriteEntry));
  HiddenFile pinned = hidden;
  pinned.path = held.pinned.name();
  return WithClientPaths(fs_.RemoveHidden(pinned), held);
}

absl::StatusOr<FileInfo> RootedFileSystem::Stat(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, path, PathUse::kReadEntry));
  return WithClientPaths(fs_.Stat(held.pinned.name()), held);
}

absl::StatusOr<FileInfo> RootedFileSystem::StatTarget(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client_, path, PathUse::kRead));
  const absl::StatusOr<FileInfo> info = fs_.Stat(held.pinned.name());
  if (info.ok() && info->kind == FileKind::kSymlink) {
    return absl::PermissionDeniedError(absl::StrCat(
        "path ", path, " leads through a symbolic link that was just made"));
  }
  return WithClientPaths(info, held);
}

absl::StatusOr<std::vector<DirectoryEntry>> RootedFileSystem::List(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held, HoldDirectory(client_, path));
  return WithClientPaths(fs_.List(held.pinned.name()), held);
}

absl::StatusOr<uint64_t> RootedFileSystem::FreeBytes(absl::string_view path) {
  // Only read access is needed: the directory may be a root, which itself
  // cannot be written.
  DCP_ASSIGN_OR_RETURN(const HeldPath held, HoldDirectory(client_, path));
  return WithClientPaths(fs_.FreeBytes(held.pinned.name()), held);
}

absl::StatusOr<FileLock> RootedFileSystem::Lock(absl::string_view path,
                                                absl::string_view note) {
  DCP_ASSIGN_OR_RETURN(const HeldPath held,
                       HoldEntry(client(), path, PathUse::kWriteEntry));
  return WithClientPaths(fs_.Lock(held.pinned.name(), note), held);
}

absl::Status RootedFileSystem::Unlock(absl::string_view path, File file) {
  const absl::StatusOr<HeldPath> held =
      HoldEntry(client_, path, PathUse::kWriteEntry);
  if (held.ok()) {
    return WithClientPaths(fs_.Unlock(held->pinned.name(), file), *held);
  }
  // The directory is no longer accessible by this path: the lock ends, but the
  // file stays.
  fs_.Close(file).IgnoreError();
  return held.status();
}

}  // namespace dcp::server
