#include "server/rooted_file_system.h"

#include <string>

#include "dcp/base/status.h"

namespace dcp::server {

absl::StatusOr<File> RootedFileSystem::OpenForRead(absl::string_view path,
                                                   DirectMode direct,
                                                   bool follow_symlinks) {
  DCP_ASSIGN_OR_RETURN(
      const std::string real,
      follow_symlinks ? client_.CheckRead(path) : client_.CheckReadEntry(path));
  // What was followed already has no link left.
  return fs_.OpenForRead(real, direct, /*follow_symlinks=*/false);
}

absl::StatusOr<File> RootedFileSystem::Create(absl::string_view path,
                                              uint64_t size,
                                              DirectMode direct) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckWriteEntry(path));
  return fs_.Create(real, size, direct);
}

absl::Status RootedFileSystem::SyncDirectory(absl::string_view path) {
  // The directory of what is written may be a root, which is not written.
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckRead(path));
  return fs_.SyncDirectory(real);
}

absl::Status RootedFileSystem::Rename(absl::string_view from,
                                      absl::string_view to) {
  DCP_ASSIGN_OR_RETURN(const std::string src, client_.CheckWriteEntry(from));
  DCP_ASSIGN_OR_RETURN(const std::string dst, client_.CheckWriteEntry(to));
  return fs_.Rename(src, dst);
}

absl::Status RootedFileSystem::RenameExclusive(absl::string_view from,
                                               absl::string_view to) {
  DCP_ASSIGN_OR_RETURN(const std::string src, client_.CheckWriteEntry(from));
  DCP_ASSIGN_OR_RETURN(const std::string dst, client_.CheckWriteEntry(to));
  return fs_.RenameExclusive(src, dst);
}

absl::Status RootedFileSystem::Exchange(absl::string_view a,
                                        absl::string_view b) {
  DCP_ASSIGN_OR_RETURN(const std::string one, client_.CheckWriteEntry(a));
  DCP_ASSIGN_OR_RETURN(const std::string other, client_.CheckWriteEntry(b));
  return fs_.Exchange(one, other);
}

absl::Status RootedFileSystem::Remove(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckWriteEntry(path));
  return fs_.Remove(real);
}

absl::Status RootedFileSystem::MakeDirectory(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckWriteEntry(path));
  return fs_.MakeDirectory(real);
}

absl::Status RootedFileSystem::RemoveDirectory(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckWriteEntry(path));
  return fs_.RemoveDirectory(real);
}

absl::StatusOr<FileInfo> RootedFileSystem::Stat(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckReadEntry(path));
  return fs_.Stat(real);
}

absl::StatusOr<std::vector<DirectoryEntry>> RootedFileSystem::List(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::string real, client_.CheckRead(path));
  return fs_.List(real);
}

}  // namespace dcp::server
