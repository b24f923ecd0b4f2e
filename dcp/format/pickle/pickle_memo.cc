// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_memo.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"

namespace dcp {
namespace {

// An opcode's operand: a fixed number of bytes, or a length followed by that
// many bytes, or lines.
enum class Operand : uint8_t {
  kNone,
  kOneByte,
  kTwoBytes,
  kFourBytes,
  kEightBytes,
  kLengthOfOne,
  kLengthOfFour,
  kLengthOfEight,
  kLine,
  kTwoLines,
};

// Opcodes that the reader refuses are left out, because bytes after them do not
// count.
constexpr std::array<Operand, 256> MakeOperands() {
  std::array<Operand, 256> operands{};
  const auto add = [&](Operand operand, absl::string_view opcodes) {
    for (const char opcode : opcodes) {
      operands[static_cast<uint8_t>(opcode)] = operand;
    }
  };
  add(Operand::kOneByte, "Kqh\x80");
  add(Operand::kTwoBytes, "M");
  add(Operand::kFourBytes, "Jrj");
  add(Operand::kEightBytes, "G\x95");
  add(Operand::kLengthOfOne, "UC\x8a\x8c");
  add(Operand::kLengthOfFour, "XTB\x8b");
  add(Operand::kLengthOfEight, "\x8d\x8e\x96");
  add(Operand::kLine, "ILFSVpg");
  add(Operand::kTwoLines, "c");
  return operands;
}

constexpr std::array<Operand, 256> kOperands = MakeOperands();

}  // namespace

// One pass over opcodes and operands, without building values.
class PickleMemo::Scan {
 public:
  Scan(ByteSpan bytes, std::vector<Word>& words)
      : rest_(bytes), words_(words) {}

  void Run() {
    while (!rest_.empty()) {
      const uint8_t opcode = rest_[0];
      rest_ = rest_.subspan(1);
      if (opcode == '.') return;
      Step(opcode);
    }
  }

 private:
  void Step(uint8_t opcode) {
    switch (opcode) {
      case 'h':  // BINGET
        return Mark(TakeNumber(1));
      case 'j':  // LONG_BINGET
        return Mark(TakeNumber(4));
      case 'g': {  // GET
        uint64_t slot = 0;
        if (absl::SimpleAtoi(TakeLine(), &slot)) Mark(slot);
        return;
      }
      case 'p':   // PUT
      case 'q':   // BINPUT
      case 'r':   // LONG_BINPUT
      case 0x94:  // MEMOIZE
        ++num_puts_;
        break;
      default:
        break;
    }
    Skip(kOperands[opcode]);
  }

  void Skip(Operand operand) {
    switch (operand) {
      case Operand::kNone:
        return;
      case Operand::kOneByte:
        return SkipBytes(1);
      case Operand::kTwoBytes:
        return SkipBytes(2);
      case Operand::kFourBytes:
        return SkipBytes(4);
      case Operand::kEightBytes:
        return SkipBytes(8);
      case Operand::kLengthOfOne:
        return SkipBytes(TakeNumber(1));
      case Operand::kLengthOfFour:
        return SkipBytes(TakeNumber(4));
      case Operand::kLengthOfEight:
        return SkipBytes(TakeNumber(8));
      case Operand::kTwoLines:
        TakeLine();
        [[fallthrough]];
      case Operand::kLine:
        TakeLine();
        return;
    }
  }

  void SkipBytes(uint64_t count) {
    rest_ = rest_.subspan(std::min<uint64_t>(count, rest_.size()));
  }

  // Little-endian.
  uint64_t TakeNumber(size_t num_bytes) {
    uint64_t number = 0;
    for (size_t i = 0; i < std::min(num_bytes, rest_.size()); ++i) {
      number |= uint64_t{rest_[i]} << (8 * i);
    }
    SkipBytes(num_bytes);
    return number;
  }

  absl::string_view TakeLine() {
    const absl::string_view text = AsText(rest_);
    const size_t end = text.find('\n');
    SkipBytes(end == absl::string_view::npos ? text.size() : end + 1);
    return text.substr(0, end);
  }

  // Ignores slots that are too far away to be set, so that they take no memory.
  void Mark(uint64_t slot) {
    if (slot > num_puts_ + kMaxPickleMemoGap) return;
    if (slot / 64 >= words_.size()) words_.resize(slot / 64 + 1);
    words_[slot / 64].slots |= uint64_t{1} << (slot % 64);
  }

  ByteSpan rest_;
  std::vector<Word>& words_;
  uint64_t num_puts_ = 0;
};

PickleMemo::PickleMemo(ByteSpan bytes) {
  Scan(bytes, words_).Run();
  uint64_t num_read = 0;
  for (Word& word : words_) {
    word.num_before = num_read;
    num_read += static_cast<uint64_t>(std::popcount(word.slots));
  }
  held_.resize(num_read);
}

Value& PickleMemo::At(uint64_t slot) {
  const Word& word = words_[slot / 64];
  const uint64_t before = word.slots & ((uint64_t{1} << (slot % 64)) - 1);
  return held_[word.num_before + static_cast<uint64_t>(std::popcount(before))];
}

// Picklers count slots from 0 or 1 upwards, so an index far beyond the number
// of slots in use is an attempt to make the reader allocate memory.
absl::Status PickleMemo::Put(uint64_t slot, Value value) {
  if (slot < end_) {
    gaps_.erase(slot);
  } else {
    if (gaps_.size() + (slot - end_) > kMaxPickleMemoGap) {
      return absl::DataLossError(absl::StrCat("memo index ", slot,
                                              " is too far beyond the ",
                                              num_in_use(), " in use"));
    }
    for (; end_ < slot; ++end_) gaps_.insert(end_);
    ++end_;
  }
  if (IsRead(slot)) At(slot) = value;
  return absl::OkStatus();
}

absl::StatusOr<Value> PickleMemo::Get(uint64_t slot) const {
  if (slot >= end_ || gaps_.contains(slot) || !IsRead(slot)) {
    return absl::DataLossError(
        absl::StrCat("memo index ", slot, " is not set"));
  }
  return const_cast<PickleMemo*>(this)->At(slot);
}

}  // namespace dcp
