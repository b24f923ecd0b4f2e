// SPDX-License-Identifier: Apache-2.0
// Python values as a pickle describes them, as inert data: no value here is
// ever called. Values live in a ValueArena and are small handles (16 bytes)
// into it. Containers keep their identity, so that a list referred to twice is
// one list. Produced by pickle_reader, used by pickle_writer and by the modules
// that interpret tensors and Metadata. Thread-compatible; a Value is valid as
// long as the arena.
#ifndef DCP_FORMAT_VALUE_VALUE_H_
#define DCP_FORMAT_VALUE_VALUE_H_

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
    // items() alternates keys and values, in the pickle's order. A key may
    // occur twice; in Python the last one counts.
    kDict,
    kGlobal,  // module(), name()
    // callable(*args), or callable.__new__(*args) if is_new(). After that,
    // items() are set as in a mapping (keys and values alternate), elements()
    // are appended, and state() is given to __setstate__ or __dict__.
    kCall,
    kPersistent,  // persistent_id()
    // Refers to a call that contains this value or comes before it, as from
    // child to parent. A walk treats it as a leaf, so that values stay acyclic.
    kEnclosing,  // enclosing()
    // Represents an object that a caller of ReadPickle keeps itself. That
    // caller defines the meaning of the two numbers. Never written.
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

  // Each accessor requires the kind named above.
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

  // Identifies a container as Python's `is` does; null for a value that is not
  // a container and for the empty tuple.
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

// The nodes that Values point to. Private: only value.cc and value_arena*.cc
// use them.
struct Value::GlobalNode {
  absl::string_view module;
  absl::string_view name;

  bool Is(absl::string_view other_module, absl::string_view other_name) const {
    return name == other_name && module == other_module;
  }
};

struct Value::SequenceNode {
  Value* data = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  absl::Span<const Value> values() const { return {data, size}; }
};

struct Value::CallNode {
  GlobalNode* callable;
  Value args;
  Value state;
  bool is_new = false;
  // Most calls have neither items nor elements.
  struct Content {
    SequenceNode items;
    SequenceNode elements;
  };
  Content* content = nullptr;
};

// Owns values and frees them all at once, or some by KeepOnly, without
// recursion.
class ValueArena {
 public:
  ValueArena();
  ~ValueArena();
  ValueArena(ValueArena&&) noexcept;
  ValueArena& operator=(ValueArena&&) noexcept;

  // Text is copied into the arena. A text has at most kMaxMetadataBytes bytes,
  // and a container at most as many values.
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

  // Changes that a pickle makes to a container after creation. The first
  // argument must have a kind that the argument's name mentions: kList, kDict
  // or kCall.
  void Append(Value list_or_call, Value element);
  void SetState(Value call, Value state);
  // Add several at once, without reserving room for more.
  void Extend(Value list_or_call, absl::Span<const Value> elements);
  void Update(Value dict_or_call, absl::Span<const Value> keys_and_values);

  // The size of `root` when shared parts are counted each time they occur and
  // 16 bytes of text count as a value. A reference from a call's own items,
  // elements or state back to the call becomes kEnclosing. DataLoss if any
  // other value contains itself, is nested deeper than kMaxPickleDepth or is
  // larger than `max_values`, which must be less than 2^31. Linear in the
  // number of values, without recursion. Call this once `root` is complete,
  // because the result is stored in the values.
  absl::StatusOr<uint64_t> Measure(Value root, uint64_t max_values);

  uint64_t num_values() const;  // containers created so far, or kept

  // Frees all containers that `roots` do not reach, but no text, and updates
  // the roots; every other handle to a container becomes invalid. Shared parts
  // stay shared. Must not be called after Measure(). Linear in the kept values,
  // which temporarily exist twice.
  void KeepOnly(absl::Span<const absl::Span<Value>> roots);

  size_t num_bytes() const;  // taken by values, in whole blocks

 private:
  struct Impl;
  class Mover;
  std::unique_ptr<Impl> impl_;
};

// Structural equality: kinds, numbers (floats by bits), texts and containers in
// order; shared parts are compared by content. Unless `exact`, a dict and an
// OrderedDict with equal items are equal (an OrderedDict's attributes are
// ignored). Both values come from ReadPickle or a builder and are therefore
// acyclic, with bounded depth and bounded expansion.
bool DeepEqual(const Value& a, const Value& b, bool exact = false);

// A short Python-like text for people: {'lr': 0.1, 'betas': (0.9, ...)} cut at
// `max_bytes`. Numbers, and texts without unusual characters, are formatted as
// Python's repr() does.
std::string ToString(const Value& value, size_t max_bytes = 200);

// "a list", "a float", etc.; for messages.
absl::string_view KindName(Value::Kind kind);

// Whether a value is a mapping: a kDict, or a call of OrderedDict, defaultdict,
// Counter or Lightning's AttributeDict.
bool IsMapping(const Value& value);

// Whether a class is Lightning's dict for hyper-parameters. The module was
// renamed twice.
bool IsAttributeDict(absl::string_view module, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_VALUE_VALUE_H_
