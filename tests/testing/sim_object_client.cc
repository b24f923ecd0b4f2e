// SPDX-License-Identifier: Apache-2.0
// Carries out data calls on a thread, in random order.
// Tested by tests/testing/sim_object_server_test.cc.
#include "tests/testing/sim_object_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/limits.h"

namespace dcp::testing {

SimObjectClient::SimObjectClient(SimObjectServer& server, uint64_t number)
    : server_(server), number_(number), worker_([this] { Work(); }) {}

SimObjectClient::~SimObjectClient() {
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
    changed_.Signal();
  }
  worker_.join();
}

bool SimObjectClient::has_conditions() const {
  return server_.options_.has_conditions;
}

// A call that is late changes places with the newest one.
void SimObjectClient::Enqueue(uint64_t num_bytes, Call call) {
  const int64_t bytes = static_cast<int64_t>(num_bytes);
  server_.CountInFlight(bytes);
  const bool late = server_.IsLate();
  absl::MutexLock lock(&mutex_);
  calls_.push_back([this, bytes, call = std::move(call)]() mutable {
    server_.CountInFlight(-bytes);
    std::move(call)();
  });
  if (late) std::swap(calls_.front(), calls_.back());
  changed_.Signal();
}

void SimObjectClient::Work() {
  while (true) {
    Call call;
    {
      absl::MutexLock lock(&mutex_);
      while (calls_.empty() && !ends_) changed_.Wait(&mutex_);
      if (calls_.empty()) return;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    std::move(call)();
  }
}

void SimObjectClient::Get(absl::string_view key, absl::string_view etag,
                          uint64_t offset, MutableByteSpan into,
                          std::stop_token stop, Done done) {
  Enqueue(into.size(), [this, key = std::string(key), etag = std::string(etag),
                        offset, into, stop = std::move(stop),
                        done = std::move(done)]() mutable {
    const auto get = [&]() -> absl::Status {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      absl::MutexLock lock(&server_.mutex_);
      const Fate fate = server_.Begin(number_, /*mutates=*/false);
      if (!fate.error.ok()) return fate.error;
      Object* object = nullptr;
      const absl::Status found = server_.Find(key, etag, &object);
      if (!found.ok()) return found;
      if (offset + into.size() > object->bytes.size()) {
        return absl::UnavailableError("the object is shorter");
      }
      std::memcpy(into.data(), object->bytes.data() + offset, into.size());
      return absl::OkStatus();
    };
    std::move(done)(get());
  });
}

void SimObjectClient::Put(absl::string_view key, ByteSpan bytes,
                          const PutCondition& condition, std::stop_token stop,
                          PutDone done) {
  Enqueue(bytes.size(),
          [this, key = std::string(key), bytes, condition,
           stop = std::move(stop), done = std::move(done)]() mutable {
            const auto put = [&]() -> absl::StatusOr<std::string> {
              if (stop.stop_requested()) return absl::CancelledError("stopped");
              absl::MutexLock lock(&server_.mutex_);
              const Fate fate = server_.Begin(number_, /*mutates=*/true);
              if (!fate.happens) return fate.error;
              const absl::Status met = server_.CheckCondition(key, condition);
              if (!met.ok()) return met;
              const Object object = server_.NewObject(AsText(bytes));
              server_.objects_[key] = object;
              if (!fate.error.ok()) return fate.error;
              return object.etag;
            };
            std::move(done)(put());
          });
}

void SimObjectClient::PutPart(absl::string_view key, absl::string_view upload,
                              uint32_t number, ByteSpan bytes,
                              std::stop_token stop, PutPartDone done) {
  Enqueue(bytes.size(), [this, key = std::string(key), id = std::string(upload),
                         number, bytes, stop = std::move(stop),
                         done = std::move(done)]() mutable {
    const auto put = [&]() -> absl::StatusOr<ObjectPart> {
      if (stop.stop_requested()) return absl::CancelledError("stopped");
      absl::MutexLock lock(&server_.mutex_);
      const Fate fate = server_.Begin(number_, /*mutates=*/true);
      if (!fate.happens) return fate.error;
      Upload* upload_of = nullptr;
      const absl::Status found = server_.FindUpload(key, id, &upload_of);
      if (!found.ok()) return found;
      const Object part = server_.NewObject(AsText(bytes));
      upload_of->parts[number] = part;
      if (!fate.error.ok()) return fate.error;
      return ObjectPart{
          .number = number, .size = bytes.size(), .etag = part.etag};
    };
    std::move(done)(put());
  });
}

absl::StatusOr<ObjectInfo> SimObjectClient::Head(absl::string_view key) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/false);
  if (!fate.error.ok()) return fate.error;
  Object* object = nullptr;
  const absl::Status found = server_.Find(key, "", &object);
  if (!found.ok()) return found;
  return ObjectInfo{.key = std::string(key),
                    .size = object->bytes.size(),
                    .etag = object->etag,
                    .modified_ns = object->modified_ns,
                    .label = object->label};
}

absl::StatusOr<ObjectPage> SimObjectClient::List(absl::string_view prefix,
                                                 bool by_folder,
                                                 absl::string_view after) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/false);
  if (!fate.error.ok()) return fate.error;
  ObjectPage page;
  for (const auto& [key, object] : server_.objects_) {
    if (!absl::StartsWith(key, prefix) || key <= after) continue;
    const size_t slash =
        by_folder ? key.find('/', prefix.size()) : std::string::npos;
    const std::string folder =
        slash == std::string::npos ? "" : key.substr(0, slash + 1);
    if (!folder.empty() &&
        (folder == after || absl::StartsWith(after, folder) ||
         (!page.folders.empty() && page.folders.back() == folder))) {
      continue;
    }
    if (page.objects.size() + page.folders.size() ==
        server_.options_.page_size) {
      page.next = std::max(page.objects.empty() ? "" : page.objects.back().key,
                           page.folders.empty() ? "" : page.folders.back());
      return page;
    }
    if (!folder.empty()) {
      page.folders.push_back(folder);
      continue;
    }
    page.objects.push_back({.key = key,
                            .size = object.bytes.size(),
                            .etag = object.etag,
                            .modified_ns = object.modified_ns});
  }
  return page;
}

absl::Status SimObjectClient::Remove(absl::Span<const std::string> keys) {
  absl::MutexLock lock(&server_.mutex_);
  if (keys.size() > kMaxObjectsRemoved) {
    return absl::InvalidArgumentError(absl::StrCat(keys.size(), " keys"));
  }
  const Fate fate = server_.Begin(number_, /*mutates=*/true);
  if (fate.happens) {
    for (const std::string& key : keys) server_.objects_.erase(key);
  }
  return fate.error;
}

absl::StatusOr<std::string> SimObjectClient::Begin(absl::string_view key,
                                                   absl::string_view label) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/true);
  std::string id =
      absl::StrCat("upload-", absl::Dec(++server_.num_made_, absl::kZeroPad9));
  if (fate.happens) {
    server_.uploads_[id] = {.key = std::string(key),
                            .label = std::string(label),
                            .begun_ns = server_.CreationTime(server_.num_made_),
                            .parts = {}};
  }
  if (!fate.error.ok()) return fate.error;
  return id;
}

absl::Status SimObjectClient::Finish(absl::string_view key,
                                     absl::string_view upload,
                                     absl::Span<const ObjectPart> parts,
                                     bool replaces) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/true);
  if (!fate.happens) return fate.error;
  Upload* found = nullptr;
  absl::Status status = server_.FindUpload(key, upload, &found);
  if (status.ok() && !replaces) {
    status = server_.CheckCondition(key, {PutCondition::Kind::kIfAbsent, ""});
  }
  if (!status.ok()) return status;
  std::string bytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto part = found->parts.find(parts[i].number);
    if (part == found->parts.end() || part->second.etag != parts[i].etag) {
      return absl::InvalidArgumentError("InvalidPart");
    }
    if (i + 1 < parts.size() &&
        part->second.bytes.size() < kMinObjectPartBytes) {
      return absl::InvalidArgumentError("EntityTooSmall");
    }
    bytes += part->second.bytes;
  }
  Object object = server_.NewObject(bytes);
  object.label = found->label;
  server_.objects_[std::string(key)] = std::move(object);
  server_.uploads_.erase(server_.uploads_.find(upload));
  return fate.error;
}

absl::Status SimObjectClient::Abort(absl::string_view key,
                                    absl::string_view upload) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/true);
  Upload* found = nullptr;
  if (fate.happens && server_.FindUpload(key, upload, &found).ok()) {
    server_.uploads_.erase(server_.uploads_.find(upload));
  }
  return fate.error;
}

absl::StatusOr<std::vector<ObjectPart>> SimObjectClient::Parts(
    absl::string_view key, absl::string_view upload) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/false);
  if (!fate.error.ok()) return fate.error;
  Upload* found = nullptr;
  const absl::Status status = server_.FindUpload(key, upload, &found);
  if (!status.ok()) return status;
  std::vector<ObjectPart> parts;
  for (const auto& [number, part] : found->parts) {
    parts.push_back(
        {.number = number, .size = part.bytes.size(), .etag = part.etag});
  }
  return parts;
}

absl::StatusOr<UploadPage> SimObjectClient::Uploads(absl::string_view prefix,
                                                    absl::string_view after) {
  absl::MutexLock lock(&server_.mutex_);
  const Fate fate = server_.Begin(number_, /*mutates=*/false);
  if (!fate.error.ok()) return fate.error;
  UploadPage page;
  for (const auto& [id, upload] : server_.uploads_) {
    if (!absl::StartsWith(upload.key, prefix) || id <= after) continue;
    if (page.uploads.size() == server_.options_.page_size) {
      page.next = page.uploads.back().id;
      return page;
    }
    page.uploads.push_back(
        {.key = upload.key, .id = id, .begun_ns = upload.begun_ns});
  }
  return page;
}

}  // namespace dcp::testing
