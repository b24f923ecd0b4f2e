// SPDX-License-Identifier: Apache-2.0
// The file system for a save or load without one in the options. Any thread.
#ifndef FSDP_CHECKPOINT_SOURCE_DEFAULT_FILE_SYSTEM_H_
#define FSDP_CHECKPOINT_SOURCE_DEFAULT_FILE_SYSTEM_H_

#include "dcp/io/file_system.h"

namespace fsdp {

// `file_system`, or the operating system's if it is null, which lives as long
// as the process.
dcp::FileSystem& FileSystemOr(dcp::FileSystem* file_system);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_SOURCE_DEFAULT_FILE_SYSTEM_H_
