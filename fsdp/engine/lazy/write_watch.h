// SPDX-License-Identifier: Apache-2.0
// WriteWatch: makes operators wait before they write into tensors that are
// still read on another thread, as a background save does until it has copied
// them. It sees all threads' operators, through LibTorch's RecordFunction.
// While it lives, each operator costs about a microsecond more. Code that
// writes without an operator calls NoteShardWrite (shard_use.h), which waits,
// too.
#ifndef FSDP_ENGINE_LAZY_WRITE_WATCH_H_
#define FSDP_ENGINE_LAZY_WRITE_WATCH_H_

#include <functional>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"

namespace fsdp {

class WriteWatch {
 public:
  // An operator that is about to write into a storage in `tensors`, through any
  // view, calls `wait` first, on the operator's thread, possibly on several
  // threads at once. `wait` may still run when the watch has ended.
  WriteWatch(const std::vector<at::Tensor>& tensors,
             std::function<void()> wait);
  ~WriteWatch();  // on any thread
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Waits as an operator that writes into `tensor` would.
  static void AwaitReaders(const at::Tensor& tensor);

 private:
  struct Entry;
  struct Registry;

  std::shared_ptr<const Entry> entry_;  // shared with operators that wait
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_LAZY_WRITE_WATCH_H_
