// SPDX-License-Identifier: Apache-2.0
// A plugin with stores in memory.
// Tested by tests/dcp/io/plugin/plugin_store_test.cc.
#include "tests/dcp/io/plugin/memory_plugin.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

struct tessera_store {
  struct Object {
    std::string bytes;
    int64_t number = 0;  // counts all puts; the ETag and the time
    std::string label = {};
  };

  const std::string url;
  absl::Mutex mutex;
  std::map<std::string, Object> objects ABSL_GUARDED_BY(mutex);
  std::set<std::pair<std::string, std::string>> uploads ABSL_GUARDED_BY(mutex);
  int64_t num_puts ABSL_GUARDED_BY(mutex) = 0;
  int64_t num_begun ABSL_GUARDED_BY(mutex) = 0;
};

struct tessera_upload {
  tessera_store* const store;
  const std::string key;
  const std::string id;
  const std::string label;
  std::string bytes;
};

namespace dcp::testing {
namespace {

std::atomic<size_t> num_open_uploads = 0;
std::atomic<bool> fail_next_write = false;

std::string ToStdString(tessera_text text) {
  return text.size == 0 ? std::string() : std::string(text.data, text.size);
}

tessera_text ToPluginText(const std::string& text) {
  return {.data = text.data(), .size = text.size()};
}

int Fail(const tessera_answer* answer, absl::StatusCode code,
         const std::string& text) {
  answer->text(answer->context, ToPluginText(text));
  return static_cast<int>(code);
}

int NoObject(tessera_store* store, const std::string& key,
             const tessera_answer* answer) {
  return Fail(answer, absl::StatusCode::kNotFound,
              absl::StrCat(store->url, "/", key, ": no such object"));
}

int Tell(const tessera_answer* answer, const std::string& key,
         const tessera_store::Object& object) {
  const std::string etag = absl::StrCat(object.number);
  const tessera_object told = {.key = ToPluginText(key),
                               .size = object.bytes.size(),
                               .etag = ToPluginText(etag),
                               .modified_ns = object.number,
                               .label = ToPluginText(object.label)};
  return answer->object(answer->context, &told);
}

int Open(tessera_text scheme, tessera_text bucket, tessera_traits* traits,
         tessera_store** store, const tessera_answer* answer) {
  static absl::Mutex mutex;
  static auto& stores = *new std::map<std::string, tessera_store>;
  const std::string url =
      absl::StrCat(ToStdString(scheme), "://", ToStdString(bucket));
  if (absl::EndsWith(url, "/forbidden")) {
    return Fail(answer, absl::StatusCode::kPermissionDenied,
                absl::StrCat(url, ": forbidden"));
  }
  absl::MutexLock lock(&mutex);
  *store = &stores.try_emplace(url, url).first->second;
  *traits = {.lists_uploads = 1, .has_labels = 1};
  return 0;
}

int Head(tessera_store* store, tessera_text key, const tessera_answer* answer) {
  const std::string name = ToStdString(key);
  absl::MutexLock lock(&store->mutex);
  const auto found = store->objects.find(name);
  if (found == store->objects.end()) return NoObject(store, name, answer);
  Tell(answer, name, found->second);
  return 0;
}

// The caller folds folders, too, so it is not done here.
int List(tessera_store* store, tessera_text prefix, int by_folder,
         const tessera_answer* answer) {
  const std::string begin = ToStdString(prefix);
  absl::MutexLock lock(&store->mutex);
  for (const auto& [key, object] : store->objects) {
    if (!absl::StartsWith(key, begin)) continue;
    const size_t slash = key.find('/', begin.size());
    const bool is_folder = by_folder != 0 && slash != std::string::npos;
    if (Tell(answer, is_folder ? key.substr(0, slash + 1) : key, object) != 0) {
      break;
    }
  }
  return 0;
}

int Get(tessera_store* store, tessera_text key, tessera_text etag,
        uint64_t offset, void* into, size_t length,
        const tessera_answer* answer) {
  const std::string name = ToStdString(key);
  absl::MutexLock lock(&store->mutex);
  const auto found = store->objects.find(name);
  if (found == store->objects.end()) return NoObject(store, name, answer);
  const tessera_store::Object& object = found->second;
  if (ToStdString(etag) != absl::StrCat(object.number)) {
    return Fail(answer, absl::StatusCode::kFailedPrecondition,
                absl::StrCat(name, " was replaced"));
  }
  if (offset + length > object.bytes.size()) {
    return Fail(answer, absl::StatusCode::kUnavailable, "past the end");
  }
  std::memcpy(into, object.bytes.data() + offset, length);
  return 0;
}

std::string PutBytes(tessera_store* store, const std::string& key,
                     std::string bytes, const std::string& label = {}) {
  absl::MutexLock lock(&store->mutex);
  const int64_t number = ++store->num_puts;
  store->objects[key] = {
      .bytes = std::move(bytes), .number = number, .label = label};
  return absl::StrCat(number);
}

int Put(tessera_store* store, tessera_text key, const void* bytes,
        size_t length, const tessera_answer* answer) {
  const std::string etag =
      PutBytes(store, ToStdString(key),
               ToStdString({static_cast<const char*>(bytes), length}));
  answer->text(answer->context, ToPluginText(etag));
  return 0;
}

int Remove(tessera_store* store, tessera_text key, const tessera_answer*) {
  absl::MutexLock lock(&store->mutex);
  store->objects.erase(ToStdString(key));
  return 0;
}

int Begin(tessera_store* store, tessera_text key, tessera_text label,
          tessera_upload** upload, const tessera_answer* answer) {
  absl::MutexLock lock(&store->mutex);
  const std::string id = absl::StrCat("id-", ++store->num_begun);
  *upload =
      new tessera_upload{store, ToStdString(key), id, ToStdString(label), ""};
  store->uploads.emplace((*upload)->key, id);
  ++num_open_uploads;
  answer->text(answer->context, ToPluginText(id));
  return 0;
}

int Write(tessera_upload* upload, const void* bytes, size_t length,
          const tessera_answer* answer) {
  if (fail_next_write.exchange(false)) {
    return Fail(answer, absl::StatusCode::kResourceExhausted, "full");
  }
  upload->bytes.append(static_cast<const char*>(bytes), length);
  return 0;
}

void End(tessera_upload* upload) {
  absl::MutexLock lock(&upload->store->mutex);
  upload->store->uploads.erase({upload->key, upload->id});
  --num_open_uploads;
}

int Finish(tessera_upload* upload, const tessera_answer*) {
  End(upload);
  PutBytes(upload->store, upload->key, std::move(upload->bytes), upload->label);
  delete upload;
  return 0;
}

int Abort(tessera_upload* upload, const tessera_answer*) {
  End(upload);
  delete upload;
  return 0;
}

int Uploads(tessera_store* store, tessera_text prefix,
            const tessera_answer* answer) {
  absl::MutexLock lock(&store->mutex);
  for (const auto& [key, id] : store->uploads) {
    if (!absl::StartsWith(key, ToStdString(prefix))) continue;
    const tessera_object told = {.key = ToPluginText(key),
                                 .size = 0,
                                 .etag = ToPluginText(id),
                                 .modified_ns = absl::GetCurrentTimeNanos(),
                                 .label = {}};
    if (answer->object(answer->context, &told) != 0) break;
  }
  return 0;
}

int RemoveUpload(tessera_store* store, tessera_text key, tessera_text id,
                 const tessera_answer*) {
  absl::MutexLock lock(&store->mutex);
  store->uploads.erase({ToStdString(key), ToStdString(id)});
  return 0;
}

}  // namespace

const tessera_plugin& MemoryPlugin() {
  static constexpr tessera_plugin kPlugin = {
      .abi_version = TESSERA_PLUGIN_ABI_VERSION,
      .open = Open,
      .close = [](tessera_store*) {},
      .head = Head,
      .list = List,
      .get = Get,
      .put = Put,
      .remove = Remove,
      .begin = Begin,
      .write = Write,
      .finish = Finish,
      .abort = Abort,
      .uploads = Uploads,
      .remove_upload = RemoveUpload,
  };
  return kPlugin;
}

size_t NumOpenUploads() { return num_open_uploads; }

void FailNextWrite() { fail_next_write = true; }

}  // namespace dcp::testing
