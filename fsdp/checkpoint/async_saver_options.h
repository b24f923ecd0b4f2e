// The options of AsyncSaver.
#ifndef FSDP_CHECKPOINT_ASYNC_SAVER_OPTIONS_H_
#define FSDP_CHECKPOINT_ASYNC_SAVER_OPTIONS_H_

#include <cstdint>

#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

struct AsyncSaverOptions {
  ProcessGroup process_group = nullptr;  // as TorchSaveOptions
  // 0: as large as the first state. If it is smaller than the state, the rest
  // streams through it, and wait_staged() waits for that.
  uint64_t staging_bytes = 0;
  bool overwrite = true;
  dcp::DirectMode direct = dcp::DirectMode::kAuto;
  dcp::FileSystem* file_system = nullptr;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_ASYNC_SAVER_OPTIONS_H_
