// SPDX-License-Identifier: Apache-2.0
// NewRoutedFileSystem: one file system of the paths of this machine and the
// names of object stores, so that a checkpoint may go from one to the other.
#ifndef DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_
#define DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_

#include <memory>

#include "dcp/io/file_system.h"
#include "dcp/io/object/object_file_system.h"

namespace dcp {

// `open` is called for the bucket of a name that IsObjectUrl; all other paths
// are those of `local`. Names of both kinds cannot be renamed to each other.
std::unique_ptr<FileSystem> NewRoutedFileSystem(
    std::unique_ptr<FileSystem> local, OpenObjectStore open);

}  // namespace dcp

#endif  // DCP_IO_FILE_SYSTEMS_ROUTED_FILE_SYSTEM_H_
