// SPDX-License-Identifier: Apache-2.0
// A pickle's memo: numbered slots. Some opcodes store the value on top of the
// stack in a slot, and others read it from there. Picklers fill a slot for
// nearly every object but read few slots. Only slots that are read are kept, so
// that an index's memo is small and keeps few values alive. Not thread-safe.
#ifndef DCP_FORMAT_PICKLE_PICKLE_MEMO_H_
#define DCP_FORMAT_PICKLE_PICKLE_MEMO_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/format/value/value.h"

namespace dcp {

class PickleMemo {
 public:
  // Scans the opcodes at the start of `bytes`, up to STOP or the end, for the
  // slots that they read.
  explicit PickleMemo(ByteSpan bytes);

  // Stores in the slot after those in use, as MEMOIZE does.
  absl::Status Put(Value value) { return Put(num_in_use(), value); }
  // DataLoss if the slot is more than kMaxPickleMemoGap slots beyond those in
  // use.
  absl::Status Put(uint64_t slot, Value value);
  // DataLoss if the slot is not set.
  absl::StatusOr<Value> Get(uint64_t slot) const;

  // The stored values, for ValueArena::KeepOnly.
  absl::Span<Value> held() { return absl::MakeSpan(held_); }

 private:
  class Scan;

  // The slots that are read, 64 to a word, with the number of such slots in the
  // words before it.
  struct Word {
    uint64_t slots = 0;
    uint64_t num_before = 0;
  };

  uint64_t num_in_use() const { return end_ - gaps_.size(); }
  bool IsRead(uint64_t slot) const {
    return slot / 64 < words_.size() &&
           (words_[slot / 64].slots >> (slot % 64) & 1) != 0;
  }
  Value& At(uint64_t slot);

  std::vector<Word> words_;
  std::vector<Value> held_;
  uint64_t end_ = 0;                    // after the last slot in use
  absl::flat_hash_set<uint64_t> gaps_;  // slots before it that are not set
};

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_MEMO_H_
