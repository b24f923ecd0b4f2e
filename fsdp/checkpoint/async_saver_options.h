// SPDX-License-Identifier: Apache-2.0
// Options for AsyncSaver.
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
  // Each rank's limit in bytes written per second; 0: no limit. For storage
  // that others use. With too little staging memory, wait_staged() waits for
  // it.
  uint64_t max_rate = 0;
  // Once the state has been copied, checksums and writing get only processors
  // that training leaves idle. If training uses all of them, a save takes
  // longer to become durable, until a caller waits for it: then training
  // pauses.
  bool yield_to_training = true;
  bool overwrite = true;
  dcp::DirectMode direct = dcp::DirectMode::kAuto;
  dcp::FileSystem* file_system = nullptr;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_ASYNC_SAVER_OPTIONS_H_
