// SPDX-License-Identifier: Apache-2.0
// ArrowStore: a bucket's objects by means of one of Arrow's file systems. The
// rules that dcp/io/plugin/store_plugin.h gives for functions hold for these
// methods. Thread-safe.
#ifndef PLUGINS_ARROW_ARROW_STORE_H_
#define PLUGINS_ARROW_ARROW_STORE_H_

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/arrow/arrow_bucket.h"

namespace tessera {

struct ArrowObject {
  std::string key;
  uint64_t size = 0;
  std::string etag;
  int64_t modified_ns = 0;
  std::string label;  // only Head says it
};

class ArrowStore {
 public:
  // Called with each object; ends the list when it returns false.
  using OnObject = std::function<bool(const ArrowObject& object)>;

  // A stream to one object.
  struct Upload {
    std::string key;
    std::string id;
    std::string path;  // where it is written
    std::shared_ptr<arrow::io::OutputStream> stream;
  };

  explicit ArrowStore(ArrowBucket bucket) : bucket_(std::move(bucket)) {}

  const std::string& url() const { return bucket_.url; }
  bool lists_uploads() const { return !bucket_.appears_when_closed; }
  bool has_labels() const { return bucket_.has_labels; }

  arrow::Result<ArrowObject> Head(const std::string& key);
  arrow::Status List(const std::string& prefix, bool by_folder,
                     const OnObject& on_object);
  arrow::Status Get(const std::string& key, const std::string& etag,
                    int64_t offset, void* into, int64_t length);
  arrow::Result<std::string> Put(const std::string& key, const void* bytes,
                                 int64_t length);
  arrow::Status Remove(const std::string& key);

  arrow::Result<Upload> Begin(const std::string& key, const std::string& label);
  arrow::Status Finish(const Upload& upload);
  arrow::Status Abort(const Upload& upload);
  arrow::Status Uploads(const std::string& prefix, const OnObject& on_object);
  arrow::Status RemoveUpload(const std::string& key, const std::string& id);

 private:
  // An object that was read lately, opened.
  struct Reader {
    std::string key;
    std::string etag;
    std::shared_ptr<arrow::io::RandomAccessFile> file;
  };

  std::string FullPath(const std::string& key) const {
    return bucket_.root + "/" + key;
  }
  arrow::Status ForEachBelow(
      const std::string& prefix, bool recursive,
      const std::function<bool(const std::string& key,
                               const arrow::fs::FileInfo& info)>& on_info);
  arrow::Result<std::shared_ptr<arrow::io::RandomAccessFile>> OpenReader(
      const std::string& key, const std::string& etag);
  void ForgetReader(const std::string& key);
  arrow::Result<ArrowObject> Look(const std::string& key);
  arrow::Result<std::string> ReadLabel(const std::string& key);
  arrow::Status CheckEtag(const std::string& key, const std::string& etag);
  arrow::Status Appear(const Upload& upload);

  const ArrowBucket bucket_;
  std::mutex mutex_;
  std::list<Reader> readers_;  // the last one used is the first
};

}  // namespace tessera

#endif  // PLUGINS_ARROW_ARROW_STORE_H_
