// SPDX-License-Identifier: Apache-2.0
// [Note: parts in order] Arrow's streams take an object's bytes from first to
// last. So an upload's parts form a queue, and as long as the queue is not
// empty, one call for the upload is in progress. A call writes one part and
// goes to the end of the line, so that many uploads do not keep the threads
// from reads. After a failed part, the upload cannot continue: later parts fail
// with the same error.
#include "dcp/io/plugin/plugin_store.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/io/object/pending_calls.h"
#include "dcp/io/plugin/call_threads.h"

namespace dcp {
namespace {

// Concurrent calls per store.
constexpr uint32_t kMaxPluginCalls = 32;

tessera_text ToPluginText(absl::string_view text) {
  return {.data = text.data(), .size = text.size()};
}

std::string ToStdString(tessera_text text) {
  return text.size == 0 ? std::string() : std::string(text.data, text.size);
}

// The answer to one call.
class Answer {
 public:
  // `on_object` returns whether to continue.
  explicit Answer(absl::AnyInvocable<bool(ObjectInfo info)> on_object = nullptr)
      : on_object_(std::move(on_object)) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  const tessera_answer* get() { return &answer_; }
  const std::string& text() const { return text_; }

  // The status for a call that returned `code`.
  absl::Status CallStatus(int code) const {
    if (code == 0) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(code), text_);
  }

 private:
  static Answer& FromContext(void* context) {
    return *static_cast<Answer*>(context);
  }

  absl::AnyInvocable<bool(ObjectInfo info)> on_object_;
  std::string text_;
  const tessera_answer answer_ = {
      .context = this,
      .text =
          [](void* context, tessera_text text) {
            FromContext(context).text_ = ToStdString(text);
          },
      .object = [](void* context, const tessera_object* object) -> int {
        Answer& answer = FromContext(context);
        const bool more =
            answer.on_object_ != nullptr &&
            answer.on_object_({.key = ToStdString(object->key),
                               .size = object->size,
                               .etag = ToStdString(object->etag),
                               .modified_ns = object->modified_ns,
                               .label = ToStdString(object->label)});
        return more ? 0 : 1;
      }};
};

absl::Status Cancelled() { return absl::CancelledError("stopped"); }

class PluginStore final : public ObjectStore {
 public:
  PluginStore(const tessera_plugin& plugin, std::string url,
              tessera_store* store, const tessera_traits& traits)
      : plugin_(plugin),
        url_(std::move(url)),
        store_(store),
        traits_(traits),
        threads_(std::make_unique<CallThreads>(kMaxPluginCalls)) {}

  ~PluginStore() override {
    threads_.reset();
    for (const auto& [name, upload] : uploads_) {
      AbortUpload(*upload).IgnoreError();
    }
    plugin_.close(store_);
  }

  std::string url() const override { return url_; }
  bool has_conditions() const override { return false; }
  bool lists_uploads() const override { return traits_.lists_uploads != 0; }
  bool has_labels() const override { return traits_.has_labels != 0; }

  void Get(absl::string_view key, absl::string_view etag, uint64_t offset,
           MutableByteSpan into, std::stop_token stop, Done done) override;
  void Put(absl::string_view key, ByteSpan bytes, const PutCondition& condition,
           std::stop_token stop, PutDone done) override;
  void PutPart(absl::string_view key, absl::string_view upload, uint32_t number,
               ByteSpan bytes, std::stop_token stop, PutPartDone done) override;

  absl::StatusOr<ObjectInfo> Head(absl::string_view key) override;
  absl::StatusOr<ObjectPage> List(absl::string_view prefix, bool by_folder,
                                  absl::string_view after) override;
  absl::Status Remove(absl::Span<const std::string> keys) override;

  absl::StatusOr<std::string> Begin(absl::string_view key,
                                    absl::string_view label) override;
  absl::Status Finish(absl::string_view key, absl::string_view upload,
                      absl::Span<const ObjectPart> parts,
                      bool replaces) override;
  absl::Status Abort(absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<std::vector<ObjectPart>> Parts(
      absl::string_view key, absl::string_view upload) override;
  absl::StatusOr<UploadPage> Uploads(absl::string_view prefix,
                                     absl::string_view after) override;

 private:
  struct Part {
    uint32_t number;
    ByteSpan bytes;
    std::stop_token stop;
    PutPartDone done;
  };
  // An upload that this process has begun. Calls in flight own it too.
  struct Upload {
    explicit Upload(tessera_upload* upload) : handle(upload) {}

    tessera_upload* const handle;
    absl::Mutex mutex;
    absl::CondVar idle;
    std::deque<Part> waiting ABSL_GUARDED_BY(mutex);
    bool busy ABSL_GUARDED_BY(mutex) = false;  // a call is being made
    uint32_t num_given ABSL_GUARDED_BY(mutex) = 0;
    std::vector<ObjectPart> put ABSL_GUARDED_BY(mutex);
    // the first failed part's status
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  using UploadName = std::pair<std::string, std::string>;  // key and id

  std::shared_ptr<Upload> Find(absl::string_view key, absl::string_view id);
  std::shared_ptr<Upload> Take(absl::string_view key, absl::string_view id);
  absl::Status NoUpload(absl::string_view key, absl::string_view id) const;
  void PutNext(const std::shared_ptr<Upload>& upload);
  absl::Status AbortUpload(Upload& upload);

  const tessera_plugin& plugin_;
  const std::string url_;
  tessera_store* const store_;
  const tessera_traits traits_;

  absl::Mutex mutex_;
  std::map<UploadName, std::shared_ptr<Upload>> uploads_
      ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CallThreads> threads_;
};

void PluginStore::Get(absl::string_view key, absl::string_view etag,
                      uint64_t offset, MutableByteSpan into,
                      std::stop_token stop, Done done) {
  threads_->Add([this, key = std::string(key), etag = std::string(etag), offset,
                 into, stop = std::move(stop),
                 done = std::move(done)]() mutable {
    if (stop.stop_requested()) return std::move(done)(Cancelled());
    Answer answer;
    const int code =
        plugin_.get(store_, ToPluginText(key), ToPluginText(etag), offset,
                    into.data(), into.size(), answer.get());
    std::move(done)(answer.CallStatus(code));
  });
}

void PluginStore::Put(absl::string_view key, ByteSpan bytes,
                      const PutCondition&, std::stop_token stop, PutDone done) {
  threads_->Add([this, key = std::string(key), bytes, stop = std::move(stop),
                 done = std::move(done)]() mutable {
    if (stop.stop_requested()) return std::move(done)(Cancelled());
    Answer answer;
    const int code = plugin_.put(store_, ToPluginText(key), bytes.data(),
                                 bytes.size(), answer.get());
    if (code != 0) return std::move(done)(answer.CallStatus(code));
    std::move(done)(answer.text());
  });
}

std::shared_ptr<PluginStore::Upload> PluginStore::Find(absl::string_view key,
                                                       absl::string_view id) {
  absl::MutexLock lock(&mutex_);
  const auto found = uploads_.find({std::string(key), std::string(id)});
  return found == uploads_.end() ? nullptr : found->second;
}

std::shared_ptr<PluginStore::Upload> PluginStore::Take(absl::string_view key,
                                                       absl::string_view id) {
  absl::MutexLock lock(&mutex_);
  auto node = uploads_.extract({std::string(key), std::string(id)});
  return node.empty() ? nullptr : std::move(node.mapped());
}

absl::Status PluginStore::NoUpload(absl::string_view key,
                                   absl::string_view id) const {
  return absl::NotFoundError(absl::StrCat(
      url_, "/", key, ": this process has no upload ", id, " of it"));
}

void PluginStore::PutPart(absl::string_view key, absl::string_view id,
                          uint32_t number, ByteSpan bytes, std::stop_token stop,
                          PutPartDone done) {
  const std::shared_ptr<Upload> upload = Find(key, id);
  if (upload == nullptr) return std::move(done)(NoUpload(key, id));
  bool start = false;
  uint32_t expected = 0;
  {
    absl::MutexLock lock(&upload->mutex);
    expected = upload->num_given + 1;
    if (number == expected) {
      ++upload->num_given;
      upload->waiting.push_back({.number = number,
                                 .bytes = bytes,
                                 .stop = std::move(stop),
                                 .done = std::move(done)});
      start = !std::exchange(upload->busy, true);
    }
  }
  if (number != expected) {
    return std::move(done)(absl::FailedPreconditionError(
        absl::StrCat(url_, "/", key, ": part ", number, " where part ",
                     expected, " comes next; this store takes them in order")));
  }
  if (start) threads_->Add([this, upload] { PutNext(upload); });
}

// See [Note: parts in order].
void PluginStore::PutNext(const std::shared_ptr<Upload>& upload) {
  Part part;
  absl::Status status;
  {
    absl::MutexLock lock(&upload->mutex);
    part = std::move(upload->waiting.front());
    upload->waiting.pop_front();
    status = upload->status;
  }
  if (status.ok() && part.stop.stop_requested()) status = Cancelled();
  if (status.ok()) {
    Answer answer;
    status = answer.CallStatus(plugin_.write(upload->handle, part.bytes.data(),
                                             part.bytes.size(), answer.get()));
  }
  // The upload as a whole has no ETag until it is finished.
  ObjectPart made{.number = part.number,
                  .size = part.bytes.size(),
                  .etag = absl::StrCat(part.number)};
  bool more = false;
  {
    absl::MutexLock lock(&upload->mutex);
    upload->status.Update(status);
    if (status.ok()) upload->put.push_back(made);
    more = !upload->waiting.empty();
    upload->busy = more;
    if (!more) upload->idle.SignalAll();
  }
  if (more) threads_->Add([this, upload] { PutNext(upload); });
  if (!status.ok()) return std::move(part.done)(status);
  std::move(part.done)(std::move(made));
}

absl::StatusOr<ObjectInfo> PluginStore::Head(absl::string_view key) {
  ObjectInfo info;
  Answer answer([&info](ObjectInfo answered) {
    info = std::move(answered);
    return true;
  });
  DCP_RETURN_IF_ERROR(
      answer.CallStatus(plugin_.head(store_, ToPluginText(key), answer.get())));
  return info;
}

// One page has all objects, because the plugin fetches all pages in any case.
absl::StatusOr<ObjectPage> PluginStore::List(absl::string_view prefix,
                                             bool by_folder,
                                             absl::string_view) {
  ObjectPage page;
  std::set<std::string> folders;
  bool too_many = false;
  Answer answer([&](ObjectInfo info) {
    too_many = page.objects.size() + folders.size() >= kMaxFiles;
    if (by_folder && info.key.size() > prefix.size() &&
        info.key.back() == '/') {
      folders.insert(std::move(info.key));
    } else {
      page.objects.push_back(std::move(info));
    }
    return !too_many;
  });
  DCP_RETURN_IF_ERROR(answer.CallStatus(plugin_.list(
      store_, ToPluginText(prefix), by_folder ? 1 : 0, answer.get())));
  if (too_many) {
    return absl::ResourceExhaustedError(
        absl::StrCat(url_, "/", prefix, ": more than ", kMaxFiles, " objects"));
  }
  std::sort(
      page.objects.begin(), page.objects.end(),
      [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  page.folders.assign(folders.begin(), folders.end());
  return page;
}

absl::Status PluginStore::Remove(absl::Span<const std::string> keys) {
  PendingCalls calls(kMaxPluginCalls);
  for (const std::string& key : keys) {
    if (!calls.Enter().ok()) break;
    threads_->Add([this, &key, &calls] {
      Answer answer;
      calls.Leave(answer.CallStatus(
          plugin_.remove(store_, ToPluginText(key), answer.get())));
    });
  }
  return calls.Wait();
}

absl::StatusOr<std::string> PluginStore::Begin(absl::string_view key,
                                               absl::string_view label) {
  Answer answer;
  tessera_upload* handle = nullptr;
  DCP_RETURN_IF_ERROR(answer.CallStatus(plugin_.begin(
      store_, ToPluginText(key), ToPluginText(label), &handle, answer.get())));
  absl::MutexLock lock(&mutex_);
  uploads_[{std::string(key), answer.text()}] =
      std::make_shared<Upload>(handle);
  return answer.text();
}

absl::Status PluginStore::Finish(absl::string_view key, absl::string_view id,
                                 absl::Span<const ObjectPart> parts, bool) {
  const std::shared_ptr<Upload> upload = Take(key, id);
  if (upload == nullptr) return NoUpload(key, id);
  bool complete = true;
  {
    absl::MutexLock lock(&upload->mutex);
    while (upload->busy) upload->idle.Wait(&upload->mutex);
    complete = std::equal(parts.begin(), parts.end(), upload->put.begin(),
                          upload->put.end(),
                          [](const ObjectPart& a, const ObjectPart& b) {
                            return a.number == b.number && a.size == b.size;
                          });
  }
  if (!complete) {
    AbortUpload(*upload).IgnoreError();
    return absl::FailedPreconditionError(absl::StrCat(
        url_, "/", key, ": not all ", parts.size(), " parts were put"));
  }
  Answer answer;
  return answer.CallStatus(plugin_.finish(upload->handle, answer.get()));
}

absl::Status PluginStore::AbortUpload(Upload& upload) {
  {
    absl::MutexLock lock(&upload.mutex);
    while (upload.busy) upload.idle.Wait(&upload.mutex);
  }
  Answer answer;
  return answer.CallStatus(plugin_.abort(upload.handle, answer.get()));
}

absl::Status PluginStore::Abort(absl::string_view key, absl::string_view id) {
  const std::shared_ptr<Upload> upload = Take(key, id);
  if (upload != nullptr) return AbortUpload(*upload);
  if (!lists_uploads()) return absl::OkStatus();
  Answer answer;
  return answer.CallStatus(plugin_.remove_upload(
      store_, ToPluginText(key), ToPluginText(id), answer.get()));
}

absl::StatusOr<std::vector<ObjectPart>> PluginStore::Parts(
    absl::string_view key, absl::string_view id) {
  const std::shared_ptr<Upload> upload = Find(key, id);
  if (upload == nullptr) return NoUpload(key, id);
  absl::MutexLock lock(&upload->mutex);
  return upload->put;
}

absl::StatusOr<UploadPage> PluginStore::Uploads(absl::string_view prefix,
                                                absl::string_view) {
  UploadPage page;
  if (!lists_uploads()) return page;
  Answer answer([&page](ObjectInfo info) {
    page.uploads.push_back({.key = std::move(info.key),
                            .id = std::move(info.etag),
                            .begun_ns = info.modified_ns});
    return page.uploads.size() < kMaxFiles;
  });
  DCP_RETURN_IF_ERROR(answer.CallStatus(
      plugin_.uploads(store_, ToPluginText(prefix), answer.get())));
  std::sort(page.uploads.begin(), page.uploads.end(),
            [](const ObjectUpload& a, const ObjectUpload& b) {
              return std::pair(a.key, a.id) < std::pair(b.key, b.id);
            });
  return page;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenPluginStore(
    const tessera_plugin& plugin, const ObjectUrl& url) {
  Answer answer;
  tessera_traits traits = {};
  tessera_store* store = nullptr;
  DCP_RETURN_IF_ERROR(answer.CallStatus(
      plugin.open(ToPluginText(url.scheme), ToPluginText(url.bucket), &traits,
                  &store, answer.get())));
  return std::make_unique<PluginStore>(
      plugin, absl::StrCat(url.scheme, "://", url.bucket), store, traits);
}

}  // namespace dcp
