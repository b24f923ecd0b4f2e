// Python values as a pickle describes them, as inert data: nothing here is
// ever called. Values live in a ValueArena and are small handles (16 bytes)
// into it; containers keep their identity, so that a list referred to twice
// is one list. Produced by pickle_reader, consumed by pickle_writer and by
// the modules that know what a tensor or a Metadata looks like.
// Thread-compatible; a Value is valid as long as its arena.
#ifndef DCP_FORMAT_VALUE_H_
#define DCP_FORMAT_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

class ValueArena;

class Value {
 public:
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,     // fits int64
    kBigInt,  // text() is little-endian two's complement
    kFloat,
    kStr,    // text() is UTF-8, possibly with encoded surrogates
    kBytes,  // text() holds the bytes
    kTuple,  // items()
    kList,   // items()
    // items() alternates keys and values, in the order of the pickle. A key
    // may stand there twice; for Python the last one counts.
    kDict,
    kGlobal,  // module(), name()
    // callable(*args), or callable.__new__(*args) if is_new(), then items() set
    // as a mapping (alternating), then elements() appended, then state() given
    // to __setstate__ or __dict__.
    kCall,
    kPersistent,  // persistent_id()
    // A call that this value is part of, or that stands before it: how a child
    // knows its parent. For a walk it is a leaf, so that values stay acyclic.
    kEnclosing,  // enclosing()
    // Stands for an object that a caller of ReadPickle keeps itself; the two
    // numbers mean what that caller says. Never in what is written.
    kToken,  // token_type(), token()
  };

  Value() = default;  // None
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value Token(uint32_t type, uint64_t token);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_none() const { return kind_ == Kind::kNone; }

  // Each accessor wants the kind named above.
  bool bool_value() const;
  int64_t int_value() const;
  double float_value() const;
  absl::string_view text() const;
  absl::Span<const Value> items() const;

  absl::string_view module() const;
  absl::string_view name() const;
  bool IsGlobal(absl::string_view module, absl::string_view name) const;

  Value callable() const;  // a kGlobal
  Value args() const;      // a kTuple
  absl::Span<const Value> elements() const;
  Value state() const;  // None when there was no BUILD
  bool is_new() const;
  bool IsCallOf(absl::string_view module, absl::string_view name) const;

  Value persistent_id() const;
  Value enclosing() const;  // a kCall

  uint32_t token_type() const;
  uint64_t token() const;

  // The same object, as Python's `is` would see a container; null for what
  // is no container and for the empty tuple.
  const void* identity() const;

 private:
  friend class ValueArena;
  struct GlobalNode;
  struct SequenceNode;
  struct CallNode;

  Kind kind_ = Kind::kNone;
  uint32_t length_ = 0;
  union {
    int64_t integer_ = 0;
    double real_;
    const char* text_;        // kStr, kBytes, kBigInt
    Value* values_;           // kTuple, kPersistent
    SequenceNode* sequence_;  // kList, kDict
    GlobalNode* global_;
    CallNode* call_;  // kCall, kEnclosing
  };
};
static_assert(sizeof(Value) == 16);

// Owns values, which are freed as a whole or by KeepOnly, without recursion.
class ValueArena {
 public:
  ValueArena();
  ~ValueArena();
  ValueArena(ValueArena&&) noexcept;
  ValueArena& operator=(ValueArena&&) noexcept;

  // Text is copied into the arena; one text or container has at most
  // kMaxMetadataBytes bytes or values.
  Value Str(absl::string_view text);
  Value Bytes(absl::string_view bytes);
  Value BigInt(absl::string_view little_endian);
  Value Tuple(absl::Span<const Value> items);
  Value List(absl::Span<const Value> items = {});
  Value Dict(absl::Span<const Value> keys_and_values = {});
  Value Global(absl::string_view module, absl::string_view name);
  Value Call(Value callable, Value args);
  Value New(Value callable, Value args);  // a call that is_new()
  Value Persistent(Value id);
  Value Enclosing(Value call);

  // Mutations a pickle makes after a container exists. `container` is of kind
  // kList, kDict or kCall as the name says.
  void Append(Value list_or_call, Value element);
  void SetItem(Value dict_or_call, Value key, Value value);
  void SetState(Value call, Value state);
  // Many at once, without room for more.
  void Extend(Value list_or_call, absl::Span<const Value> elements);
  void Update(Value dict_or_call, absl::Span<const Value> keys_and_values);

  // How large `root` is when shared parts are counted each time they are met
  // and 16 bytes of text count as a value. A call that its own items, elements
  // or state refer to becomes kEnclosing there. DataLoss when anything else
  // contains itself, is nested deeper than kMaxPickleDepth or is larger than
  // `max_values`, which is less than 2^31. Linear in what exists, without
  // recursion. To be asked once `root` is complete: the answer is kept in the
  // values.
  absl::StatusOr<uint64_t> Measure(Value root, uint64_t max_values);

  uint64_t num_values() const;  // containers created so far, or kept

  // Frees all values but those that `roots` reach, and gives the roots their
  // new handles; every other handle becomes invalid. What was shared stays
  // shared. For before Measure(). Linear in what is kept, which meanwhile
  // exists twice.
  void KeepOnly(absl::Span<const absl::Span<Value>> roots);

  size_t num_bytes() const;  // taken by values, in whole blocks

 private:
  struct Impl;
  class Mover;
  std::unique_ptr<Impl> impl_;
};

// Structural equality: kinds, numbers (floats by bits), texts and containers
// in order; shared parts are compared by content. Unless `exact`, dict and
// OrderedDict of equal items are equal (attributes of an OrderedDict do not
// count). Both values come from ReadPickle or a builder and are therefore
// acyclic, of bounded depth and bounded expansion.
bool DeepEqual(const Value& a, const Value& b, bool exact = false);

// A short Python-like rendering for people: {'lr': 0.1, 'betas': (0.9, ...)}
// cut at `max_bytes`. Numbers, and texts without odd characters, are written
// as Python's repr() does.
std::string ToString(const Value& value, size_t max_bytes = 200);

// "a list", "a float": for messages.
absl::string_view KindName(Value::Kind kind);

// Whether a value is a mapping: a kDict, or a call of OrderedDict, defaultdict,
// Counter or Lightning's AttributeDict.
bool IsMapping(const Value& value);

// Whether a class is Lightning's dict of hyper-parameters, whose module has
// been renamed twice.
bool IsAttributeDict(absl::string_view module, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_H_
