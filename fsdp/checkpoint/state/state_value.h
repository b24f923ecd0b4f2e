// SPDX-License-Identifier: Apache-2.0
// StateDict: the state that a training job saves and loads. Like a Python state
// dict, it is an ordered tree of names with tensors, DTensors and plain values
// as leaves. A value type: copies are deep, except tensors, which alias. For
// the thread that trains.
//
//   fsdp::StateDict state = {{"model", *fsdp::get_model_state_dict(*model)},
//                           {"step", 12}};
#ifndef FSDP_CHECKPOINT_STATE_STATE_VALUE_H_
#define FSDP_CHECKPOINT_STATE_STATE_VALUE_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "fsdp/mesh/dtensor.h"

namespace fsdp {

class StateValue;
class Stateful;
using StateList = std::vector<StateValue>;

// Python's bytes, as opposed to text.
struct StateBytes {
  std::string bytes;
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

// Python's tuple, such as AdamW's betas: always one entry in a checkpoint, and
// a tuple when Python loads it.
struct StateTuple {
  StateList items;
};

// Keys are unique, and ordered as they were added.
class StateDict {
 public:
  using Entries = std::vector<std::pair<std::string, StateValue>>;

  StateDict() = default;
  StateDict(std::initializer_list<std::pair<std::string, StateValue>> entries);

  bool empty() const;
  size_t size() const;
  // Null when there is no such key.
  const StateValue* find(absl::string_view key) const;
  StateValue* find(absl::string_view key);
  // Adds None under a new key.
  StateValue& operator[](const std::string& key);
  // Returns whether the key existed.
  bool erase(absl::string_view key);

  // Do not change keys.
  Entries::const_iterator begin() const;
  Entries::const_iterator end() const;
  Entries::iterator begin();
  Entries::iterator end();

 private:
  Entries entries_;
  absl::flat_hash_map<std::string, size_t> index_;  // in entries_
};

class StateValue {
 public:
  using Variant =
      std::variant<std::monostate, bool, int64_t, double, std::string,
                   StateBytes, at::Tensor, DTensor, StateList, StateTuple,
                   StateDict, std::shared_ptr<Stateful>>;

  StateValue() = default;  // None
  // NOLINTBEGIN(google-explicit-constructor): {"step", 12}, {"model", dict}
  StateValue(bool value) : value_(value) {}
  template <std::integral T>
  StateValue(T value) : value_(static_cast<int64_t>(value)) {}
  StateValue(double value) : value_(value) {}
  StateValue(const char* text) : value_(std::string(text)) {}
  StateValue(std::string text) : value_(std::move(text)) {}
  StateValue(StateBytes bytes) : value_(std::move(bytes)) {}
  StateValue(at::Tensor tensor) : value_(std::move(tensor)) {}
  StateValue(DTensor tensor) : value_(std::move(tensor)) {}
  StateValue(StateList list) : value_(std::move(list)) {}
  StateValue(StateTuple tuple) : value_(std::move(tuple)) {}
  StateValue(StateDict dict) : value_(std::move(dict)) {}
  // The object is asked for its state in a save and given it in a load. Owners:
  // the caller and this value.
  template <std::derived_from<Stateful> T>
  StateValue(std::shared_ptr<T> object)
      : value_(std::shared_ptr<Stateful>(std::move(object))) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_none() const { return value_.index() == 0; }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  T* get_if() {
    return std::get_if<T>(&value_);
  }
  const Variant& variant() const { return value_; }

 private:
  Variant value_;
};

inline bool StateDict::empty() const { return entries_.empty(); }
inline size_t StateDict::size() const { return entries_.size(); }
inline StateDict::Entries::const_iterator StateDict::begin() const {
  return entries_.begin();
}
inline StateDict::Entries::const_iterator StateDict::end() const {
  return entries_.end();
}
inline StateDict::Entries::iterator StateDict::begin() {
  return entries_.begin();
}
inline StateDict::Entries::iterator StateDict::end() { return entries_.end(); }

// An object with a state, such as a scheduler or a data loader. As PyTorch's
// torch.distributed.checkpoint.stateful.Stateful.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual absl::StatusOr<StateDict> state_dict() = 0;
  virtual absl::Status load_state_dict(const StateDict& state) = 0;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_STATE_VALUE_H_
