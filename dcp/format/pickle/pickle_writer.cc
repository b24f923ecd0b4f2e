// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_writer.h"

#include <bit>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/format/pickle/pickle_text.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

}  // namespace

template <typename T>
void PickleWriter::Number(T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  __builtin_memcpy(bytes, &value, sizeof(T));
  out_.append(bytes, sizeof(T));
}

PickleWriter::PickleWriter() : out_("\x80\x02") {}

void PickleWriter::None() { Opcode('N'); }

void PickleWriter::Bool(bool value) { Opcode(value ? '\x88' : '\x89'); }

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    Opcode('K');
    Number(static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) {
    Opcode('M');
    Number(static_cast<uint16_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    Opcode('J');
    Number(static_cast<int32_t>(value));
  } else {
    BigInt(absl::string_view(reinterpret_cast<const char*>(&value),
                             sizeof(value)));
  }
}

void PickleWriter::BigInt(absl::string_view little_endian) {
  little_endian = ShortestInt(little_endian);
  const size_t size = little_endian.size();
  if (size <= std::numeric_limits<uint8_t>::max()) {
    Opcode('\x8a');
    Number(static_cast<uint8_t>(size));
  } else {
    DCP_CHECK(size <= size_t{std::numeric_limits<int32_t>::max()}, size);
    Opcode('\x8b');
    Number(static_cast<uint32_t>(size));
  }
  absl::StrAppend(&out_, little_endian);
}

void PickleWriter::Float(double value) {
  Opcode('G');
  Number(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::Text(absl::string_view utf8) {
  DCP_CHECK(utf8.size() <= std::numeric_limits<uint32_t>::max(), utf8.size());
  Opcode('X');
  Number(static_cast<uint32_t>(utf8.size()));
  absl::StrAppend(&out_, utf8);
}

void PickleWriter::Str(absl::string_view text) {
  if (const auto it = strings_.find(text); it != strings_.end()) {
    Get(it->second);
    return;
  }
  Text(text);
  strings_.emplace(text, Put());
}

void PickleWriter::Global(absl::string_view module, absl::string_view name) {
  if (module == "builtins") module = "__builtin__";
  if (module == "copyreg") module = "copy_reg";
  std::string opcode = absl::StrCat("c", module, "\n", name, "\n");
  if (const auto it = globals_.find(opcode); it != globals_.end()) {
    Get(it->second);
    return;
  }
  DCP_CHECK(IsPlainName(module) && IsPlainName(name), module, " ", name);
  out_ += opcode;
  globals_.emplace(std::move(opcode), Put());
}

void PickleWriter::Bytes(absl::string_view bytes) {
  Global("_codecs", "encode");
  Text(Utf8FromLatin1(bytes));
  Str("latin1");
  Tuple2();
  Reduce();
}

void PickleWriter::EmptyTuple() { Opcode(')'); }
void PickleWriter::EmptyList() { Opcode(']'); }
void PickleWriter::EmptyDict() { Opcode('}'); }
void PickleWriter::Mark() { Opcode('('); }
void PickleWriter::Tuple() { Opcode('t'); }
void PickleWriter::Tuple1() { Opcode('\x85'); }
void PickleWriter::Tuple2() { Opcode('\x86'); }
void PickleWriter::Tuple3() { Opcode('\x87'); }
void PickleWriter::Appends() { Opcode('e'); }
void PickleWriter::SetItems() { Opcode('u'); }
void PickleWriter::Reduce() { Opcode('R'); }
void PickleWriter::NewObj() { Opcode('\x81'); }
void PickleWriter::Build() { Opcode('b'); }
void PickleWriter::PersistentId() { Opcode('Q'); }

uint32_t PickleWriter::Put() {
  const uint32_t slot = next_slot_++;
  if (slot <= std::numeric_limits<uint8_t>::max()) {
    Opcode('q');
    Number(static_cast<uint8_t>(slot));
  } else {
    Opcode('r');
    Number(slot);
  }
  return slot;
}

void PickleWriter::Get(uint32_t slot) {
  if (slot <= std::numeric_limits<uint8_t>::max()) {
    Opcode('h');
    Number(static_cast<uint8_t>(slot));
  } else {
    Opcode('j');
    Number(slot);
  }
}

std::string PickleWriter::Finish() {
  Opcode('.');
  return std::move(out_);
}

namespace {

// Writes a tree of values. A first walk finds the containers that occur more
// than once; only those are memoized.
class TreeWriter {
 public:
  std::string Write(const Value& root) {
    Count(root);
    Emit(root);
    return writer_.Finish();
  }

 private:
  struct Seen {
    bool shared = false;
    bool written = false;
    uint32_t slot = 0;
  };

  void Count(const Value& value);
  void CountAll(absl::Span<const Value> values) {
    for (const Value& value : values) Count(value);
  }
  void Emit(const Value& value);
  void EmitContainer(const Value& value);
  void Memoize(const Value& value);
  void EmitTuple(absl::Span<const Value> items);
  void EmitElements(absl::Span<const Value> elements);
  void EmitItems(absl::Span<const Value> items);

  PickleWriter writer_;
  absl::flat_hash_map<const void*, Seen> seen_;
};

void TreeWriter::Count(const Value& value) {
  if (value.is(Kind::kEnclosing)) {
    seen_[value.enclosing().identity()].shared = true;
    return;
  }
  if (value.identity() == nullptr) return;
  const auto [it, added] = seen_.try_emplace(value.identity());
  if (!added) {
    it->second.shared = true;
    return;
  }
  if (value.is(Kind::kPersistent)) {
    Count(value.persistent_id());
    return;
  }
  if (value.is(Kind::kCall)) {
    Count(value.args());
    CountAll(value.elements());
    Count(value.state());
  }
  CountAll(value.items());
}

// Memoizes the value just pushed, if it will be fetched again.
void TreeWriter::Memoize(const Value& value) {
  Seen& seen = seen_[value.identity()];
  if (!seen.shared || seen.written) return;
  seen.slot = writer_.Put();
  seen.written = true;
}

void TreeWriter::Emit(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return writer_.None();
    case Kind::kBool:
      return writer_.Bool(value.bool_value());
    case Kind::kInt:
      return writer_.Int(value.int_value());
    case Kind::kBigInt:
      return writer_.BigInt(value.text());
    case Kind::kFloat:
      return writer_.Float(value.float_value());
    case Kind::kStr:
      return writer_.Str(value.text());
    case Kind::kBytes:
      return writer_.Bytes(value.text());
    case Kind::kGlobal:
      return writer_.Global(value.module(), value.name());
    case Kind::kEnclosing: {
      const Seen& seen = seen_[value.enclosing().identity()];
      DCP_CHECK(seen.written, "an enclosing object that is not written");
      return writer_.Get(seen.slot);
    }
    default:
      break;
  }
  if (value.identity() == nullptr) return writer_.EmptyTuple();
  if (const Seen& seen = seen_[value.identity()]; seen.written) {
    return writer_.Get(seen.slot);
  }
  EmitContainer(value);
  Memoize(value);
}

void TreeWriter::EmitContainer(const Value& value) {
  switch (value.kind()) {
    case Kind::kTuple:
      EmitTuple(value.items());
      return;
    case Kind::kList:
      writer_.EmptyList();
      EmitElements(value.items());
      return;
    case Kind::kDict:
      writer_.EmptyDict();
      EmitItems(value.items());
      return;
    case Kind::kPersistent:
      Emit(value.persistent_id());
      writer_.PersistentId();
      return;
    default:
      break;
  }
  Emit(value.callable());
  Emit(value.args());
  value.is_new() ? writer_.NewObj() : writer_.Reduce();
  Memoize(value);  // before any value that may refer to it
  EmitItems(value.items());
  EmitElements(value.elements());
  if (value.state().is_none()) return;
  Emit(value.state());
  writer_.Build();
}

void TreeWriter::EmitTuple(absl::Span<const Value> items) {
  if (items.size() > 3) writer_.Mark();
  for (const Value& item : items) Emit(item);
  switch (items.size()) {
    case 1:
      return writer_.Tuple1();
    case 2:
      return writer_.Tuple2();
    case 3:
      return writer_.Tuple3();
    default:
      return writer_.Tuple();
  }
}

void TreeWriter::EmitElements(absl::Span<const Value> elements) {
  if (elements.empty()) return;
  writer_.Mark();
  for (const Value& element : elements) Emit(element);
  writer_.Appends();
}

void TreeWriter::EmitItems(absl::Span<const Value> items) {
  if (items.empty()) return;
  writer_.Mark();
  for (const Value& item : items) Emit(item);
  writer_.SetItems();
}

}  // namespace

std::string WritePickle(const Value& root) { return TreeWriter().Write(root); }

}  // namespace dcp
