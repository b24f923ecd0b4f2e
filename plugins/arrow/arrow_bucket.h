// SPDX-License-Identifier: Apache-2.0
// OpenArrowBucket: the file system of Arrow that a name such as gs://bucket
// means, with the settings of this machine. README.md lists them.
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
  // Whether a stream shows nothing of itself until it is closed, and then
  // replaces what was there. If not, an object is written under another name
  // and moved.
  bool appears_when_closed = false;
  // Whether moving replaces what was there at one instant.
  bool moves_replace = false;
  // Whether folders exist only as long as something is below them, and are
  // listed only by what is below them.
  bool implicit_folders = false;
  // Whether a folder must be made before an object in it.
  bool needs_folders = false;
  // Whether the metadata of objects can be set and read.
  bool has_labels = false;
};

arrow::Result<ArrowBucket> OpenArrowBucket(const std::string& scheme,
                                           const std::string& bucket);

}  // namespace tessera

#endif  // PLUGINS_ARROW_ARROW_BUCKET_H_
