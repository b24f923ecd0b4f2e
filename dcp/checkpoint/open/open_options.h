// OpenOptions: how a checkpoint is opened, and how far opening has come.
#ifndef DCP_CHECKPOINT_OPEN_OPEN_OPTIONS_H_
#define DCP_CHECKPOINT_OPEN_OPEN_OPTIONS_H_

#include <atomic>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/io/file_system.h"

namespace dcp {

// How far opening has come. Written by the threads that open and locate, read
// by any thread.
struct OpenProgress {
  // The items to locate, and those that are done; both 0 while the index is
  // read.
  std::atomic<uint64_t> num_items{0};
  std::atomic<uint64_t> num_items_located{0};
};

struct OpenOptions {
  DirectMode direct = DirectMode::kAuto;
  // For a checkpoint saved with use_collectives=False, which has an index for
  // each rank (__{rank}.metadata): the rank whose index is read. Without it,
  // only a checkpoint of one rank can be opened.
  int64_t rank = -1;
  // Optional; must outlive the checkpoint.
  OpenProgress* progress = nullptr;
  // The maximum memory for blocks in Locate; at least kMinMemoryBytes. With
  // twice that, two threads share many items.
  uint64_t locate_memory_bytes = 2 * kMinMemoryBytes;
  // Checks the CRC-32 of every pickle that is read, here or by Locate. If off,
  // damaged objects are read as far as possible.
  bool check_crcs = false;
};

// For CheckStop: what was going on while a checkpoint is opened.
inline constexpr absl::string_view kOpening = "the checkpoint was opened";

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_OPEN_OPTIONS_H_
