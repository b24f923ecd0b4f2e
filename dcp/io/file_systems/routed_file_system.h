// SPDX-License-Identifier: Apache-2.0
// NewRoutedFileSystem: one file system for this machine's paths and object
// store names, so that a checkpoint may go from one to the other.
#ifndef DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_

#include <memory>

#include "dcp/io/file_system.h"
#include "dcp/io/object/object_file_system.h"

namespace dcp {

// `open` is called for the bucket in a name that IsObjectUrl; `local` serves
// all other paths. A file cannot be renamed from one kind to the other.
std::unique_ptr<FileSystem> NewRoutedFileSystem(
    std::unique_ptr<FileSystem> local, OpenObjectStore open);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_
