// SPDX-License-Identifier: Apache-2.0
// [Note: file versions] An open file is the object with the ETag from the time
// when it was opened: every request carries it, so that a reader never sees a
// mixture of two objects.
#include "dcp/io/object/object_file_system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_lists.h"
#include "dcp/io/object/pending_calls.h"

namespace dcp {
namespace {

// Concurrent ranges in one blocking read.
constexpr uint32_t kMaxGetsOfRead = 8;

absl::Status NoRename(absl::string_view path) {
  return absl::UnimplementedError(
      absl::StrCat(path, ": an object store neither renames nor locks"));
}

uint64_t PathNumber(absl::string_view text) {
  return Xxh3Digest(AsBytes(text));
}

absl::Status PutAndWait(ObjectStore& store, absl::string_view key,
                        ByteSpan bytes, const PutCondition& condition) {
  PendingCalls call(1);
  DCP_RETURN_IF_ERROR(call.Enter());
  store.Put(key, bytes, condition, {},
            [&call](const absl::StatusOr<std::string>& put) {
              call.Leave(put.status());
            });
  return call.Wait();
}

}  // namespace

ObjectFileSystem::~ObjectFileSystem() {
  absl::MutexLock lock(&mutex_);
  for (auto& [path, writer] : hidden_) {
    const absl::Status aborted = writer->Abort();
    if (aborted.ok()) continue;
    DCP_LOG(kWarning) << "event=upload_left path=" << path
                      << " error=" << aborted.message();
  }
}

absl::StatusOr<ObjectFileSystem::Place> ObjectFileSystem::Find(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(ObjectUrl url, ParseObjectUrl(path));
  const std::string name = absl::StrCat(url.scheme, "://", url.bucket);
  absl::MutexLock lock(&mutex_);
  auto found = stores_.find(name);
  if (found == stores_.end()) {
    DCP_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store, open_(url));
    found = stores_.emplace(name, std::move(store)).first;
  }
  return Place{.store = found->second.get(), .url = std::move(url)};
}

absl::StatusOr<std::shared_ptr<ObjectFileSystem::OpenObject>>
ObjectFileSystem::Lookup(FileHandle handle) {
  absl::MutexLock lock(&mutex_);
  const auto found = open_objects_.find(handle);
  if (found != open_objects_.end()) return found->second;
  return absl::FailedPreconditionError(
      absl::StrCat("no file is open with the handle ", handle));
}

File ObjectFileSystem::Add(std::shared_ptr<OpenObject> object, uint64_t size) {
  absl::MutexLock lock(&mutex_);
  const FileHandle handle = next_handle_;
  // Handles that were given long ago are closed.
  next_handle_ = handle == INT32_MAX ? kFirstObjectHandle : handle + 1;
  DCP_CHECK(open_objects_.emplace(handle, std::move(object)).second);
  return {.handle = handle, .size = size};
}

FileSystemTraits ObjectFileSystem::TraitsAt(absl::string_view path) {
  return {.has_rename = false,
          .in_order = TakesPartsInOrder(path.substr(0, path.find(':'))),
          .block_bytes = kObjectBlockBytes,
          .max_blocks = kMaxObjectParts};
}

absl::StatusOr<File> ObjectFileSystem::OpenForRead(absl::string_view path,
                                                   DirectMode, bool) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.url.key.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a bucket and not an object"));
  }
  auto object = std::make_shared<OpenObject>();
  object->store = place.store;
  DCP_ASSIGN_OR_RETURN(object->info, place.store->Head(place.url.key));
  const uint64_t size = object->info.size;
  return Add(std::move(object), size);
}

absl::StatusOr<File> ObjectFileSystem::Create(absl::string_view path,
                                              uint64_t size, DirectMode) {
  DCP_ASSIGN_OR_RETURN(const uint64_t part_bytes,
                       BlockBytesFor(TraitsAt(path), size));
  return CreateInParts(path, {.size = size, .part_bytes = part_bytes});
}

absl::StatusOr<File> ObjectFileSystem::CreateInParts(absl::string_view path,
                                                     const InParts& parts) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.url.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a bucket; name an object in it"));
  }
  if (parts.part_bytes < kMinObjectPartBytes && parts.size > parts.part_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": parts of ", parts.part_bytes,
        " bytes, an object store takes no smaller ones than ",
        kMinObjectPartBytes, "; use a pool with blocks of BlockBytesFor"));
  }
  if (parts.size / parts.part_bytes >= kMaxObjectParts) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": ", parts.size, " bytes are more than ", kMaxObjectParts,
        " parts of ", parts.part_bytes, " bytes"));
  }
  auto object = std::make_shared<OpenObject>();
  object->store = place.store;
  object->info.key = place.url.key;
  object->info.size = parts.size;
  object->writer =
      std::make_unique<ObjectWriter>(*place.store, place.url.key, parts);
  return Add(std::move(object), parts.size);
}

absl::Status ObjectFileSystem::Close(File file) {
  DCP_ASSIGN_OR_RETURN(std::shared_ptr<OpenObject> object, Lookup(file.handle));
  std::unique_ptr<ObjectWriter> writer = std::move(object->writer);
  {
    absl::MutexLock lock(&mutex_);
    open_objects_.erase(file.handle);
    if (writer == nullptr) return absl::OkStatus();
    if (object->synced && writer->in_parts().hidden) {
      hidden_[absl::StrCat(object->store->url(), "/", writer->key())] =
          std::move(writer);
      return absl::OkStatus();
    }
  }
  return object->synced ? absl::OkStatus() : writer->Abort();
}

absl::Status ObjectFileSystem::Read(const File& file, uint64_t offset,
                                    MutableByteSpan data) {
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<OpenObject> object,
                       Lookup(file.handle));
  const ObjectInfo& info = object->info;
  if (offset > info.size || data.size() > info.size - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("read ", object->store->url(), "/", info.key, " [", offset,
                     ", +", data.size(), "): file ends at ", info.size));
  }
  PendingCalls calls(kMaxGetsOfRead);
  for (uint64_t done = 0; done < data.size();) {
    const uint64_t length =
        std::min<uint64_t>(data.size() - done, kObjectBlockBytes);
    if (!calls.Enter().ok()) break;
    object->store->Get(
        info.key, info.etag, offset + done, data.subspan(done, length), {},
        [&calls](const absl::Status& status) { calls.Leave(status); });
    done += length;
  }
  return calls.Wait();
}

absl::Status ObjectFileSystem::Write(const File& file, uint64_t offset,
                                     ByteSpan data) {
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<OpenObject> object,
                       Lookup(file.handle));
  DCP_CHECK(object->writer != nullptr, object->info.key);
  return object->writer->Write(offset, data);
}

void ObjectFileSystem::Start(const IoRequest& request, std::stop_token stop,
                             ObjectStore::Done done) {
  absl::StatusOr<std::shared_ptr<OpenObject>> object = Lookup(request.file);
  if (!object.ok()) return std::move(done)(object.status());
  OpenObject& open = **object;
  if (request.op == IoRequest::Op::kRead) {
    return open.store->Get(open.info.key, open.info.etag, request.offset,
                           MutableByteSpan(request.data, request.length),
                           std::move(stop), std::move(done));
  }
  DCP_CHECK(open.writer != nullptr, open.info.key);
  open.writer->Put(request.offset, ByteSpan(request.data, request.length),
                   std::move(stop), std::move(done));
}

absl::Status ObjectFileSystem::Truncate(const File& file, uint64_t size) {
  if (size == file.size) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("an object of ", file.size,
                                               " bytes cannot become one of ",
                                               size, " bytes"));
}

absl::Status ObjectFileSystem::Sync(const File& file) {
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<OpenObject> object,
                       Lookup(file.handle));
  DCP_CHECK(object->writer != nullptr, object->info.key);
  DCP_RETURN_IF_ERROR(object->writer->Sync());
  object->synced = true;
  return absl::OkStatus();
}

absl::Status ObjectFileSystem::SyncDirectory(absl::string_view) {
  return absl::OkStatus();
}

absl::Status ObjectFileSystem::Rename(absl::string_view from,
                                      absl::string_view) {
  return NoRename(from);
}

absl::Status ObjectFileSystem::RenameExclusive(absl::string_view from,
                                               absl::string_view) {
  return NoRename(from);
}

absl::Status ObjectFileSystem::Exchange(absl::string_view a,
                                        absl::string_view) {
  return NoRename(a);
}

absl::Status ObjectFileSystem::Remove(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  return place.store->Remove({place.url.key});
}

absl::Status ObjectFileSystem::MakeDirectory(absl::string_view) {
  return absl::OkStatus();
}

absl::Status ObjectFileSystem::RemoveDirectory(absl::string_view) {
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> ObjectFileSystem::TakeHidden(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  absl::MutexLock lock(&mutex_);
  auto node =
      hidden_.extract(absl::StrCat(place.store->url(), "/", place.url.key));
  if (!node.empty()) return std::move(node.mapped());
  return absl::NotFoundError(
      absl::StrCat(path, ": no file waits to be published there"));
}

absl::Status ObjectFileSystem::Publish(absl::string_view path, bool replaces) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                       TakeHidden(path));
  const absl::Status published = writer->Publish(replaces);
  if (!published.ok()) writer->Abort().IgnoreError();
  return published;
}

absl::Status ObjectFileSystem::Discard(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                       TakeHidden(path));
  return writer->Abort();
}

absl::StatusOr<HiddenFile> ObjectFileSystem::Release(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                       TakeHidden(path));
  return HiddenFile{.path = std::string(path), .id = writer->Release()};
}

absl::Status ObjectFileSystem::Adopt(const HiddenFile& hidden, uint64_t size) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(hidden.path));
  auto writer = std::make_unique<ObjectWriter>(
      *place.store, place.url.key,
      InParts{.size = size, .part_bytes = kObjectBlockBytes, .hidden = true});
  DCP_RETURN_IF_ERROR(writer->Adopt(hidden.id));
  absl::MutexLock lock(&mutex_);
  hidden_[absl::StrCat(place.store->url(), "/", place.url.key)] =
      std::move(writer);
  return absl::OkStatus();
}

absl::Status ObjectFileSystem::Replace(absl::string_view path,
                                       absl::string_view bytes,
                                       const std::optional<FileInfo>& seen) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  const absl::StatusOr<ObjectInfo> there = place.store->Head(place.url.key);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  const std::optional<FileInfo> now =
      there.ok() ? std::optional(ToFileInfo(*place.store, *there))
                 : std::nullopt;
  if (now != seen) {
    return OkIfOurs(
        path, bytes,
        absl::AlreadyExistsError(absl::StrCat(
            path, now.has_value()
                      ? " was written by another program in the meantime"
                      : " was removed in the meantime")));
  }
  PutCondition condition;
  if (place.store->has_conditions()) {
    condition.kind = seen.has_value() ? PutCondition::Kind::kIfEtag
                                      : PutCondition::Kind::kIfAbsent;
    if (there.ok()) condition.etag = there->etag;
  }
  const absl::Status put =
      PutAndWait(*place.store, place.url.key, AsBytes(bytes), condition);
  if (!absl::IsAlreadyExists(put) && !absl::IsFailedPrecondition(put)) {
    return put;
  }
  return OkIfOurs(path, bytes, absl::AlreadyExistsError(put.message()));
}

// Success, instead of `error`, if `bytes` are at `path`: this process, or
// another one with the same bytes, has put them there, although no answer came.
absl::Status ObjectFileSystem::OkIfOurs(absl::string_view path,
                                        absl::string_view bytes,
                                        absl::Status error) {
  const absl::StatusOr<bool> ours = HasBytes(path, bytes);
  return ours.ok() && *ours ? absl::OkStatus() : error;
}

absl::StatusOr<bool> ObjectFileSystem::HasBytes(absl::string_view path,
                                                absl::string_view bytes) {
  DCP_ASSIGN_OR_RETURN(const File file,
                       OpenForRead(path, DirectMode::kOff, false));
  std::string there(file.size == bytes.size() ? bytes.size() : 0, '\0');
  const absl::Status read = Read(
      file, 0,
      MutableByteSpan(reinterpret_cast<uint8_t*>(there.data()), there.size()));
  DCP_RETURN_IF_ERROR(Close(file));
  DCP_RETURN_IF_ERROR(read);
  return there == bytes;
}

absl::StatusOr<std::vector<StoredFile>> ObjectFileSystem::ListBelow(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  return ListFilesBelow(*place.store, place.url.key);
}

absl::StatusOr<std::vector<HiddenFile>> ObjectFileSystem::ListHidden(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  return ListUploadsBelow(*place.store, place.url.key);
}

absl::Status ObjectFileSystem::RemoveHidden(const HiddenFile& hidden) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(hidden.path));
  return place.store->Abort(place.url.key, hidden.id);
}

FileInfo ObjectFileSystem::ToFileInfo(const ObjectStore& store,
                                      const ObjectInfo& info) {
  return {.kind = FileKind::kFile,
          .size = info.size,
          .device = PathNumber(store.url()),
          .inode = PathNumber(info.etag),
          .num_links = 1,
          .modified_ns = info.modified_ns,
          .changed_ns = info.modified_ns,
          .label = info.label};
}

absl::StatusOr<FileInfo> ObjectFileSystem::Stat(absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  if (!place.url.key.empty()) {
    const absl::StatusOr<ObjectInfo> info = place.store->Head(place.url.key);
    if (info.ok()) return ToFileInfo(*place.store, *info);
    if (!absl::IsNotFound(info.status())) return info.status();
  }
  DCP_ASSIGN_OR_RETURN(
      const ObjectPage page,
      place.store->List(FolderPrefix(place.url.key), /*by_folder=*/true, ""));
  const bool is_folder =
      place.url.key.empty() || !page.objects.empty() || !page.folders.empty();
  if (is_folder) {
    return FileInfo{.kind = FileKind::kDirectory,
                    .device = PathNumber(place.store->url()),
                    .num_links = 1};
  }
  return absl::NotFoundError(absl::StrCat(path, ": no object has this name"));
}

absl::StatusOr<FileInfo> ObjectFileSystem::Stat(const File& file) {
  DCP_ASSIGN_OR_RETURN(const std::shared_ptr<OpenObject> object,
                       Lookup(file.handle));
  return ToFileInfo(*object->store, object->info);
}

absl::StatusOr<std::vector<DirectoryEntry>> ObjectFileSystem::List(
    absl::string_view path) {
  DCP_ASSIGN_OR_RETURN(const Place place, Find(path));
  DCP_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                       ListFolder(*place.store, place.url.key));
  if (entries.empty() && !place.url.key.empty()) {
    return absl::NotFoundError(absl::StrCat(path, ": nothing is there"));
  }
  return entries;
}

absl::StatusOr<uint64_t> ObjectFileSystem::FreeBytes(absl::string_view) {
  return UINT64_MAX;
}

absl::StatusOr<FileLock> ObjectFileSystem::Lock(absl::string_view path,
                                                absl::string_view) {
  return NoRename(path);
}

absl::Status ObjectFileSystem::Unlock(absl::string_view path, File) {
  return NoRename(path);
}

absl::StatusOr<std::unique_ptr<IoQueue>> ObjectFileSystem::NewQueue(
    uint32_t depth, std::span<uint8_t>) {
  return NewObjectQueue(depth);
}

std::unique_ptr<ObjectQueue> ObjectFileSystem::NewObjectQueue(uint32_t depth) {
  return std::make_unique<ObjectQueue>(
      [this](const IoRequest& request, std::stop_token stop,
             ObjectStore::Done done) {
        Start(request, std::move(stop), std::move(done));
      },
      depth);
}

}  // namespace dcp
