// SPDX-License-Identifier: Apache-2.0
// NewDefaultFileSystem: the default for programs and training jobs: paths on
// this machine, s3:// with the AWS tools' settings (dcp/io/s3/README.md), and
// the other schemes in IsObjectUrl through a plugin (plugins/arrow/README.md).
#ifndef DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// A bucket is opened when the name is used first; until then there is no
// network traffic, and no plugin is loaded.
std::unique_ptr<FileSystem> NewDefaultFileSystem();

// Whether that file system serves `path`: OK for paths on this machine, s3://,
// and other stores with an installed plugin, which this loads. Unimplemented
// for other URLs, and LoadPlugin's errors. Any thread.
absl::Status CheckServed(absl::string_view path);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_
