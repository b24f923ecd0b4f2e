// The memo of a pickle: numbered slots, into which some opcodes put the value
// on top of the stack and out of which others get it again. Picklers fill a
// slot for nearly every object and read few of them; only those are held, so
// that the memo of an index is small and keeps little alive. Not thread-safe.
#ifndef DCP_FORMAT_PICKLE_MEMO_H_
#define DCP_FORMAT_PICKLE_MEMO_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dcp/base/bytes.h"
#include "dcp/format/value.h"

namespace dcp {

class PickleMemo {
 public:
  // Looks through the opcodes at the head of `bytes` for the slots that they
  // read, up to STOP or the end.
  explicit PickleMemo(ByteSpan bytes);

  // Into the slot after those in use, as MEMOIZE does.
  absl::Status Put(Value value) { return Put(num_in_use(), value); }
  // DataLoss for a slot that is more than kMaxPickleMemoGap slots away from
  // those in use.
  absl::Status Put(uint64_t slot, Value value);
  // DataLoss for a slot that is not set.
  absl::StatusOr<Value> Get(uint64_t slot) const;

  // What is held, for ValueArena::KeepOnly.
  absl::Span<Value> held() { return absl::MakeSpan(held_); }

 private:
  class Scan;

  // The slots that are read, 64 to a word, each word with the number of those
  // before it.
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

#endif  // DCP_FORMAT_PICKLE_MEMO_H_
