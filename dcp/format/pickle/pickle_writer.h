// SPDX-License-Identifier: Apache-2.0
// Writes pickles with protocol 2, the newest that torch.load(weights_only=True)
// accepts, without frames. There are two interfaces: WritePickle for a Value,
// and the opcode methods for large regular tables (.metadata), for which a tree
// would be too large. Pure; thread-compatible.
#ifndef DCP_FORMAT_PICKLE_PICKLE_WRITER_H_
#define DCP_FORMAT_PICKLE_PICKLE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"

namespace dcp {

// The pickle for `root`; containers that are shared stay shared. `root` is
// acyclic, not deeper than the values from a reader or Unflatten, and contains
// every value that a kEnclosing in it refers to. Bytes become
// _codecs.encode(text, 'latin1'), and builtins are spelled __builtin__, as in
// Python's own protocol 2 pickler.
std::string WritePickle(const Value& root);

class PickleWriter {
 public:
  PickleWriter();  // writes PROTO 2

  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void BigInt(absl::string_view little_endian);
  void Float(double value);
  // Equal strings and globals are written once and then fetched by memo.
  void Str(absl::string_view text);
  void Global(absl::string_view module, absl::string_view name);
  void Bytes(absl::string_view bytes);

  void EmptyTuple();
  void EmptyList();
  void EmptyDict();
  void Mark();
  void Tuple();   // from the mark
  void Tuple1();  // from the stack's top
  void Tuple2();
  void Tuple3();
  void Appends();   // from the mark
  void SetItems();  // from the mark
  void Reduce();
  void NewObj();
  void Build();
  void PersistentId();

  // Put memoizes the value on top and returns the slot; Get fetches it again.
  uint32_t Put();
  void Get(uint32_t slot);

  std::string Finish();  // writes STOP; do not use the writer afterwards

 private:
  void Opcode(char opcode) { out_ += opcode; }
  template <typename T>
  void Number(T value);  // little-endian
  void Text(absl::string_view utf8);

  std::string out_;
  uint32_t next_slot_ = 0;
  absl::flat_hash_map<std::string, uint32_t> strings_;
  absl::flat_hash_map<std::string, uint32_t> globals_;
};

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_WRITER_H_
