// Tested by tests/fsdp/checkpoint/source/local_source_test.cc.
#include "fsdp/checkpoint/source/default_file_system.h"

namespace fsdp {

dcp::FileSystem& FileSystemOr(dcp::FileSystem* file_system) {
  static auto* const posix = dcp::NewPosixFileSystem().release();
  return file_system != nullptr ? *file_system : *posix;
}

}  // namespace fsdp
