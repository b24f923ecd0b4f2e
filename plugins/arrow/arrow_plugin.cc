// SPDX-License-Identifier: Apache-2.0
// The C interface of dcp/io/plugin/store_plugin.h over ArrowStore.
//
// Tested by tests/plugins/arrow/gs_store_test.cc.
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "dcp/io/plugin/store_plugin.h"
#include "plugins/arrow/arrow_bucket.h"
#include "plugins/arrow/arrow_error.h"
#include "plugins/arrow/arrow_store.h"

using tessera::ArrowObject;
using tessera::ArrowStore;

struct tessera_store {
  explicit tessera_store(tessera::ArrowBucket bucket)
      : store(std::move(bucket)) {}

  ArrowStore store;
};

struct tessera_upload {
  tessera_store& owner;
  ArrowStore::Upload upload;
};

namespace {

std::string TextToString(tessera_text text) {
  return text.size == 0 ? std::string() : std::string(text.data, text.size);
}

tessera_text StringToText(const std::string& text) {
  return {.data = text.data(), .size = text.size()};
}

void Say(const tessera_answer* answer, const std::string& text) {
  answer->text(answer->context, StringToText(text));
}

int Tell(const tessera_answer* answer, const ArrowObject& object) {
  const tessera_object told = {.key = StringToText(object.key),
                               .size = object.size,
                               .etag = StringToText(object.etag),
                               .modified_ns = object.modified_ns,
                               .label = StringToText(object.label)};
  return answer->object(answer->context, &told);
}

ArrowStore::OnObject TellEach(const tessera_answer* answer) {
  return
      [answer](const ArrowObject& object) { return Tell(answer, object) == 0; };
}

// Does `work` and answers with the error, if any.
int Answer(const std::string& url, const char* operation,
           const tessera_answer* answer,
           const std::function<arrow::Status()>& work) {
  const arrow::Status status = tessera::Guarded(work);
  if (status.ok()) return 0;
  Say(answer, tessera::ErrorText(url, operation, status));
  return static_cast<int>(tessera::FindCode(status));
}

int AnswerFor(tessera_store* store, tessera_text key, const char* operation,
              const tessera_answer* answer,
              const std::function<arrow::Status(
                  ArrowStore& store, const std::string& key)>& work) {
  const std::string name = TextToString(key);
  return Answer(store->store.url() + "/" + name, operation, answer,
                [&] { return work(store->store, name); });
}

int Open(tessera_text scheme, tessera_text bucket, tessera_traits* traits,
         tessera_store** store, const tessera_answer* answer) {
  const std::string url = TextToString(scheme) + "://" + TextToString(bucket);
  return Answer(url, "open", answer, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(
        tessera::ArrowBucket opened,
        tessera::OpenArrowBucket(TextToString(scheme), TextToString(bucket)));
    auto made = std::make_unique<tessera_store>(std::move(opened));
    traits->lists_uploads = made->store.lists_uploads() ? 1 : 0;
    traits->has_labels = made->store.has_labels() ? 1 : 0;
    *store = made.release();
    return arrow::Status::OK();
  });
}

void Close(tessera_store* store) { delete store; }

int Head(tessera_store* store, tessera_text key, const tessera_answer* answer) {
  return AnswerFor(
      store, key, "look at", answer,
      [answer](ArrowStore& objects, const std::string& name) -> arrow::Status {
        ARROW_ASSIGN_OR_RAISE(const ArrowObject object, objects.Head(name));
        Tell(answer, object);
        return arrow::Status::OK();
      });
}

int List(tessera_store* store, tessera_text prefix, int by_folder,
         const tessera_answer* answer) {
  return AnswerFor(store, prefix, "list", answer,
                   [&](ArrowStore& objects, const std::string& name) {
                     return objects.List(name, by_folder != 0,
                                         TellEach(answer));
                   });
}

int Get(tessera_store* store, tessera_text key, tessera_text etag,
        uint64_t offset, void* into, size_t length,
        const tessera_answer* answer) {
  return AnswerFor(store, key, "get", answer,
                   [&](ArrowStore& objects, const std::string& name) {
                     return objects.Get(name, TextToString(etag),
                                        static_cast<int64_t>(offset), into,
                                        static_cast<int64_t>(length));
                   });
}

int Put(tessera_store* store, tessera_text key, const void* bytes,
        size_t length, const tessera_answer* answer) {
  return AnswerFor(
      store, key, "put", answer,
      [&](ArrowStore& objects, const std::string& name) -> arrow::Status {
        ARROW_ASSIGN_OR_RAISE(
            const std::string etag,
            objects.Put(name, bytes, static_cast<int64_t>(length)));
        Say(answer, etag);
        return arrow::Status::OK();
      });
}

int Remove(tessera_store* store, tessera_text key,
           const tessera_answer* answer) {
  return AnswerFor(store, key, "remove", answer,
                   [](ArrowStore& objects, const std::string& name) {
                     return objects.Remove(name);
                   });
}

int Begin(tessera_store* store, tessera_text key, tessera_text label,
          tessera_upload** upload, const tessera_answer* answer) {
  return AnswerFor(
      store, key, "begin an upload", answer,
      [&](ArrowStore& objects, const std::string& name) -> arrow::Status {
        ARROW_ASSIGN_OR_RAISE(ArrowStore::Upload begun,
                              objects.Begin(name, TextToString(label)));
        Say(answer, begun.id);
        *upload = new tessera_upload{*store, std::move(begun)};
        return arrow::Status::OK();
      });
}

int Write(tessera_upload* upload, const void* bytes, size_t length,
          const tessera_answer* answer) {
  return AnswerFor(&upload->owner, StringToText(upload->upload.key),
                   "put a part", answer, [&](ArrowStore&, const std::string&) {
                     return upload->upload.stream->Write(
                         bytes, static_cast<int64_t>(length));
                   });
}

int Finish(tessera_upload* upload, const tessera_answer* answer) {
  const std::unique_ptr<tessera_upload> gone(upload);
  return AnswerFor(&upload->owner, StringToText(upload->upload.key),
                   "finish an upload", answer,
                   [&](ArrowStore& objects, const std::string&) {
                     return objects.Finish(upload->upload);
                   });
}

int Abort(tessera_upload* upload, const tessera_answer* answer) {
  const std::unique_ptr<tessera_upload> gone(upload);
  return AnswerFor(&upload->owner, StringToText(upload->upload.key),
                   "abort an upload", answer,
                   [&](ArrowStore& objects, const std::string&) {
                     return objects.Abort(upload->upload);
                   });
}

int Uploads(tessera_store* store, tessera_text prefix,
            const tessera_answer* answer) {
  return AnswerFor(store, prefix, "list uploads", answer,
                   [answer](ArrowStore& objects, const std::string& name) {
                     return objects.Uploads(name, TellEach(answer));
                   });
}

int RemoveUpload(tessera_store* store, tessera_text key, tessera_text id,
                 const tessera_answer* answer) {
  return AnswerFor(store, key, "remove an upload", answer,
                   [id](ArrowStore& objects, const std::string& name) {
                     return objects.RemoveUpload(name, TextToString(id));
                   });
}

constexpr tessera_plugin kPlugin = {
    .abi_version = TESSERA_PLUGIN_ABI_VERSION,
    .open = Open,
    .close = Close,
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

}  // namespace

extern "C" __attribute__((visibility("default"))) const tessera_plugin*
tessera_get_plugin() {
  return &kPlugin;
}
