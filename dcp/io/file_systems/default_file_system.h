// SPDX-License-Identifier: Apache-2.0
// NewDefaultFileSystem: what programs and training jobs use unless they say
// otherwise: the paths of this machine, s3:// with the settings of the AWS
// tools (dcp/io/s3/README.md), and the other stores that IsObjectUrl knows by a
// plugin (plugins/arrow/README.md).
#ifndef DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// A bucket is opened when its name is used first; until then nothing of the
// network is touched, and no plugin is loaded.
std::unique_ptr<FileSystem> NewDefaultFileSystem();

// Whether that file system serves `path`: OK for paths of this machine, s3://,
// and other stores whose plugin is there, which is loaded. Unimplemented for
// other URLs, and the error of LoadPlugin. Any thread.
absl::Status CheckServed(absl::string_view path);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEMS_DEFAULT_FILE_SYSTEM_H_
