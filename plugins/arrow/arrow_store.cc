// SPDX-License-Identifier: Apache-2.0
// How objects are made from Arrow's files:
//
//   ETag     size and time, the same from every call that describes an object
//   Get      Google's files are opened at one generation, so that all reads see
//            the same object. Others are checked again after each read
//   folders  Google's listing has no folders, so everything below is listed
//            and folded
//   upload   Google's streams show nothing until they are closed. Others are
//            written under another name and then moved; an existing object is
//            replaced only where that happens at one instant
//   Abort    destroying or aborting one of Google's streams closes it, and the
//            object would appear with the bytes written so far. So aborted
//            streams stay open until the process ends; the server forgets them
//            after a week
//
// Tested by tests/plugins/arrow/gs_store_test.cc.
#include "plugins/arrow/arrow_store.h"

#include <arrow/util/key_value_metadata.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "plugins/arrow/arrow_error.h"

namespace tessera {
namespace {

using arrow::fs::FileInfo;
using arrow::fs::FileType;

constexpr size_t kMaxReaders = 64;
// The metadata that holds an object's label, when it is written and when it is
// read.
constexpr char kLabelName[] = "tessera-label";
constexpr char kLabelRead[] = "metadata.tessera-label";
// Before the id, in the name of an object that has not appeared.
constexpr char kUploadMark[] = ".tessera-upload-";
constexpr size_t kMarkBytes = sizeof(kUploadMark) - 1;
constexpr size_t kIdDigits = 16;

int64_t ToNanoseconds(const FileInfo& info) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             info.mtime().time_since_epoch())
      .count();
}

std::string MakeEtag(const FileInfo& info) {
  return "\"" + std::to_string(info.size()) + "-" +
         std::to_string(ToNanoseconds(info)) + "\"";
}

ArrowObject MakeObject(const std::string& key, const FileInfo& info) {
  return {.key = key,
          .size = static_cast<uint64_t>(info.size()),
          .etag = MakeEtag(info),
          .modified_ns = ToNanoseconds(info),
          .label = {}};
}

std::string NewId() {
  static std::atomic<uint64_t> count = 0;
  uint64_t number = 0;
  // std::random_device throws where a sandbox denies the kernel's random bytes.
  if (getentropy(&number, sizeof(number)) != 0) {
    number = static_cast<uint64_t>(
                 std::chrono::system_clock::now().time_since_epoch().count()) ^
             static_cast<uint64_t>(getpid()) << 40 ^
             static_cast<uint64_t>(gethostid()) << 24;
  }
  number += count.fetch_add(1);
  char digits[kIdDigits + 1];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(number));
  return digits;
}

// Where the mark begins in an upload's name; npos for other names.
size_t FindMark(const std::string& key) {
  if (key.size() < kMarkBytes + kIdDigits) return std::string::npos;
  const size_t mark = key.size() - kMarkBytes - kIdDigits;
  return key.compare(mark, kMarkBytes, kUploadMark) == 0 ? mark
                                                         : std::string::npos;
}

std::string ParentFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

arrow::Status Replaced() {
  return Fail(Code::kFailedPrecondition,
              "the object was replaced or removed while it was read");
}

// See Abort, above.
void KeepOpen(std::shared_ptr<arrow::io::OutputStream> stream) {
  static std::mutex mutex;
  static auto& kept =
      *new std::vector<std::shared_ptr<arrow::io::OutputStream>>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(std::move(stream));
}

}  // namespace

arrow::Result<ArrowObject> ArrowStore::Look(const std::string& key) {
  ARROW_ASSIGN_OR_RAISE(const FileInfo info,
                        bucket_.files->GetFileInfo(FullPath(key)));
  if (info.type() == FileType::File) return MakeObject(key, info);
  return Fail(Code::kNotFound, "no such object");
}

arrow::Result<std::string> ArrowStore::ReadLabel(const std::string& key) {
  if (!bucket_.has_labels) return "";
  ARROW_ASSIGN_OR_RAISE(const auto file,
                        bucket_.files->OpenInputFile(FullPath(key)));
  ARROW_ASSIGN_OR_RAISE(const auto metadata, file->ReadMetadata());
  const int at = metadata->FindKey(kLabelRead);
  return at < 0 ? "" : metadata->value(at);
}

arrow::Result<ArrowObject> ArrowStore::Head(const std::string& key) {
  ARROW_ASSIGN_OR_RAISE(ArrowObject object, Look(key));
  ARROW_ASSIGN_OR_RAISE(object.label, ReadLabel(key));
  return object;
}

// The files and folders with keys that begin with `prefix`; folder keys end
// with a slash.
arrow::Status ArrowStore::ForEachBelow(
    const std::string& prefix, bool recursive,
    const std::function<bool(const std::string& key, const FileInfo& info)>&
        on_info) {
  arrow::fs::FileSelector selector;
  const std::string folder = ParentFolder(prefix);
  selector.base_dir = folder.empty() ? bucket_.root : FullPath(folder);
  if (selector.base_dir.empty()) selector.base_dir = "/";
  selector.allow_not_found = true;
  selector.recursive = recursive;
  ARROW_ASSIGN_OR_RAISE(const std::vector<FileInfo> infos,
                        bucket_.files->GetFileInfo(selector));
  const std::string root = FullPath("");
  for (const FileInfo& info : infos) {
    if (info.path().compare(0, root.size(), root) != 0) continue;
    std::string key = info.path().substr(root.size());
    if (info.type() == FileType::Directory) key += "/";
    if (key.compare(0, prefix.size(), prefix) != 0) continue;
    if (!on_info(key, info)) break;
  }
  return arrow::Status::OK();
}

arrow::Status ArrowStore::List(const std::string& prefix, bool by_folder,
                               const OnObject& on_object) {
  const bool recursive = !by_folder || bucket_.implicit_folders;
  return ForEachBelow(
      prefix, recursive, [&](const std::string& key, const FileInfo& info) {
        const size_t slash = key.find('/', prefix.size());
        if (by_folder && slash != std::string::npos) {
          ArrowObject folder;
          folder.key = key.substr(0, slash + 1);
          return on_object(folder);
        }
        const bool is_object =
            info.type() == FileType::File && FindMark(key) == std::string::npos;
        return !is_object || on_object(MakeObject(key, info));
      });
}

arrow::Status ArrowStore::CheckEtag(const std::string& key,
                                    const std::string& etag) {
  ARROW_ASSIGN_OR_RAISE(const ArrowObject there, Look(key));
  return there.etag == etag ? arrow::Status::OK() : Replaced();
}

arrow::Result<std::shared_ptr<arrow::io::RandomAccessFile>>
ArrowStore::OpenReader(const std::string& key, const std::string& etag) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto reader = readers_.begin(); reader != readers_.end(); ++reader) {
      if (reader->key != key || reader->etag != etag) continue;
      readers_.splice(readers_.begin(), readers_, reader);
      return reader->file;
    }
  }
  std::shared_ptr<arrow::io::RandomAccessFile> file;
  ARROW_ASSIGN_OR_RAISE(file, bucket_.files->OpenInputFile(FullPath(key)));
  // In this order: the ETag is that of the opened object.
  ARROW_RETURN_NOT_OK(CheckEtag(key, etag));
  ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
  // Otherwise the first read makes Google's file fetch the whole object, in
  // addition to the requested bytes.
  if (size > 0) ARROW_RETURN_NOT_OK(file->Seek(size - 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  readers_.push_front({key, etag, file});
  if (readers_.size() > kMaxReaders) readers_.pop_back();
  return file;
}

void ArrowStore::ForgetReader(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  readers_.remove_if(
      [&key](const Reader& reader) { return reader.key == key; });
}

arrow::Status ArrowStore::Get(const std::string& key, const std::string& etag,
                              int64_t offset, void* into, int64_t length) {
  ARROW_ASSIGN_OR_RAISE(const auto file, OpenReader(key, etag));
  ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
  if (offset > size || length > size - offset) {
    return Fail(Code::kUnavailable, "bytes " + std::to_string(offset) + " to " +
                                        std::to_string(offset + length) +
                                        " of an object that ends at " +
                                        std::to_string(size));
  }
  const arrow::Result<int64_t> read = file->ReadAt(offset, length, into);
  if (!read.ok() || *read != length) ForgetReader(key);
  if (!read.ok()) {
    // Where a generation is gone, Arrow says only that the file is closed.
    const Code there = FindCode(CheckEtag(key, etag));
    return there == Code::kFailedPrecondition || there == Code::kNotFound
               ? Replaced()
               : read.status();
  }
  if (*read != length) {
    return Fail(Code::kUnavailable, "the server sent " + std::to_string(*read) +
                                        " of " + std::to_string(length) +
                                        " bytes");
  }
  return bucket_.appears_when_closed ? arrow::Status::OK()
                                     : CheckEtag(key, etag);
}

arrow::Status ArrowStore::Remove(const std::string& key) {
  ForgetReader(key);
  const arrow::Status removed = bucket_.files->DeleteFile(FullPath(key));
  return FindCode(removed) == Code::kNotFound ? arrow::Status::OK() : removed;
}

arrow::Result<std::string> ArrowStore::Put(const std::string& key,
                                           const void* bytes, int64_t length) {
  ARROW_ASSIGN_OR_RAISE(const Upload upload, Begin(key, ""));
  const arrow::Status written = upload.stream->Write(bytes, length);
  if (!written.ok()) {
    ARROW_UNUSED(Abort(upload));
    return written;
  }
  ARROW_RETURN_NOT_OK(Finish(upload));
  ARROW_ASSIGN_OR_RAISE(const ArrowObject there, Look(key));
  return there.etag;
}

arrow::Result<ArrowStore::Upload> ArrowStore::Begin(const std::string& key,
                                                    const std::string& label) {
  Upload upload{.key = key, .id = NewId(), .path = FullPath(key), .stream = {}};
  if (!bucket_.appears_when_closed) upload.path += kUploadMark + upload.id;
  if (bucket_.needs_folders) {
    ARROW_RETURN_NOT_OK(bucket_.files->CreateDir(ParentFolder(upload.path),
                                                 /*recursive=*/true));
  }
  auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  if (bucket_.has_labels && !label.empty()) {
    metadata->Append(kLabelName, label);
  }
  ARROW_ASSIGN_OR_RAISE(upload.stream,
                        bucket_.files->OpenOutputStream(upload.path, metadata));
  return upload;
}

arrow::Status ArrowStore::Finish(const Upload& upload) {
  ForgetReader(upload.key);
  ARROW_RETURN_NOT_OK(upload.stream->Close());
  if (bucket_.appears_when_closed) return arrow::Status::OK();
  const arrow::Status appeared = Appear(upload);
  if (!appeared.ok()) ARROW_UNUSED(bucket_.files->DeleteFile(upload.path));
  return appeared;
}

arrow::Status ArrowStore::Appear(const Upload& upload) {
  const std::string path = FullPath(upload.key);
  ARROW_ASSIGN_OR_RAISE(const FileInfo there, bucket_.files->GetFileInfo(path));
  if (there.type() != FileType::NotFound && !bucket_.moves_replace) {
    return Fail(Code::kFailedPrecondition,
                "this store cannot replace an object at one instant, so it "
                "replaces none: choose another name, or remove that object");
  }
  const arrow::Status moved = bucket_.files->Move(upload.path, path);
  // Azure accounts without a hierarchical namespace copy only.
  if (FindCode(moved) != Code::kUnimplemented) return moved;
  ARROW_RETURN_NOT_OK(bucket_.files->CopyFile(upload.path, path));
  return bucket_.files->DeleteFile(upload.path);
}

arrow::Status ArrowStore::Abort(const Upload& upload) {
  if (bucket_.appears_when_closed) {
    KeepOpen(upload.stream);
    return arrow::Status::OK();
  }
  ARROW_UNUSED(upload.stream->Abort());
  return RemoveUpload(upload.key, upload.id);
}

arrow::Status ArrowStore::Uploads(const std::string& prefix,
                                  const OnObject& on_object) {
  return ForEachBelow(
      prefix, /*recursive=*/true,
      [&](const std::string& key, const FileInfo& info) {
        const size_t mark = FindMark(key);
        if (mark == std::string::npos || info.type() != FileType::File) {
          return true;
        }
        return on_object({.key = key.substr(0, mark),
                          .size = static_cast<uint64_t>(info.size()),
                          .etag = key.substr(mark + kMarkBytes),
                          .modified_ns = ToNanoseconds(info),
                          .label = {}});
      });
}

arrow::Status ArrowStore::RemoveUpload(const std::string& key,
                                       const std::string& id) {
  return Remove(key + kUploadMark + id);
}

}  // namespace tessera
