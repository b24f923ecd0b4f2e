// SPDX-License-Identifier: Apache-2.0
// Keeps the operating system's file system for the whole process.
// Tested by tests/fsdp/checkpoint/source/local_source_test.cc.
#include "fsdp/checkpoint/source/default_file_system.h"

#include "dcp/io/file_systems/default_file_system.h"

namespace fsdp {

dcp::FileSystem& FileSystemOr(dcp::FileSystem* file_system) {
  static auto* const all = dcp::NewDefaultFileSystem().release();
  return file_system != nullptr ? *file_system : *all;
}

}  // namespace fsdp
