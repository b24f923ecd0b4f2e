// SPDX-License-Identifier: Apache-2.0
// OpenArrowBucket: opens the Arrow file system for a name such as gs://bucket,
// with the settings of this machine. README.md lists them.
#ifndef PLUGINS_ARROW_ARROW_BUCKET_H_
#define PLUGINS_ARROW_ARROW_BUCKET_H_

#include <arrow/filesystem/filesystem.h>
#include <arrow/result.h>

#include <memory>
#include <string>

namespace tessera {

struct ArrowBucket {
  std::string url;  // "gs://bucket", for messages
  std::shared_ptr<arrow::fs::FileSystem> files;
  std::string root;  // before "/key"
  // Whether a stream's object appears only when the stream is closed, and then
  // replaces the object there. If not, an object is written under another name
  // and moved.
  bool appears_when_closed = false;
  // Whether moving replaces the existing object at one instant.
  bool moves_replace = false;
  // Whether folders exist only as long as something is below them, and are
  // listed only by the entries below them.
  bool implicit_folders = false;
  // Whether a folder must be made before an object in it.
  bool needs_folders = false;
  // Whether object metadata can be set and read.
  bool has_labels = false;
};

arrow::Result<ArrowBucket> OpenArrowBucket(const std::string& scheme,
                                           const std::string& bucket);

}  // namespace tessera

#endif  // PLUGINS_ARROW_ARROW_BUCKET_H_
